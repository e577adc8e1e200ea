// Asks for the token when the server refuses the one that the page has.

import { setToken, token } from "./token.js";
import { html } from "./vendor/preact-htm.js";

export function TokenPage({ done }) {
  const submit = (event) => {
    event.preventDefault();
    setToken(new FormData(event.target).get("token"));
    done();
  };
  return html`<main>
    <section class="panel narrow" aria-label="Token">
      <h1>${token() ? "The server refuses this token" : "This server asks for a token"}</h1>
      <p>The log of the job has a line <code>UI at …</code>. Open the address in that line: it contains the token. If you chose the token yourself with the variable <code>TIDEGATE_TOKEN</code>, enter it here.</p>
      <p class="hint">A new start of the job has a new token, unless you choose one. The token stays in this tab.</p>
      <form onSubmit=${submit}>
        <label class="field">Token<input name="token" type="password" autocomplete="off" required spellcheck="false" /></label>
        <div class="buttons"><button type="submit" class="button primary">Continue</button></div>
      </form>
    </section>
  </main>`;
}
