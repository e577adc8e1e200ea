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
      <p>Open the address that <code>tidegate run</code> or <code>tidegate ui</code> printed: it contains the token. In Python it is <code>server.ui_url</code>. Or enter the token here. The log of the job names the file that holds it, unless the variable <code>TIDEGATE_TOKEN</code> was set.</p>
      <p class="hint">Unless you choose the token, every start of a server makes a new one. It stays in this tab.</p>
      <form onSubmit=${submit}>
        <label class="field">Token<input name="token" type="password" autocomplete="off" required spellcheck="false" /></label>
        <div class="buttons"><button type="submit" class="button primary">Continue</button></div>
      </form>
    </section>
  </main>`;
}
