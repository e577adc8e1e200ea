// Sets the theme before the first paint: the chosen one, or the system's. A classic script, because modules run later.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");

  function chosen() {
    try {
      return localStorage.getItem("tidegate-theme");
    } catch {
      return null; // Storage is switched off.
    }
  }

  function apply() {
    const found = chosen();
    root.dataset.theme = found === "light" || found === "dark" ? found : system.matches ? "dark" : "light";
  }

  apply();
  system.addEventListener("change", apply);
  addEventListener("tidegate-theme", apply);
})();
