// Panel of a served turn that sends its prompt again, edited or not, and shows the responses.

function sendPanel(episode, turn, turnIndex) {
  const content = h("div", { class: "send" });
  const details = h("details", {}, h("summary", {}, "Resend with an edited prompt"), content);
  const url = `turn?${new URLSearchParams({ episode: episode.id, turn: turnIndex })}`;
  details.addEventListener("toggle", async () => {
    if (!details.open || content.childElementCount) return;
    content.replaceChildren(h("p", { class: "empty", "aria-busy": "true" }, "Loading …"));
    try {
      content.replaceChildren(...sendForm(await request(url), turn, url));
    } catch (error) {
      content.replaceChildren(h("p", { class: "send-error" }, error.message));
    }
  });
  return h("div", { class: "resend" }, details);
}

async function request(url, body) {
  const options = body && { method: "POST", body: JSON.stringify(body) };
  const response = await fetch(url, options).catch(() => null);
  if (!response) throw new Error("The server does not respond.");
  const result = await response.json().catch(() => ({ error: `the server sent status ${response.status}` }));
  if (result.error) throw new Error(result.error[0].toUpperCase() + result.error.slice(1));
  return result;
}

function sendForm(prompt, turn, url) {
  const editors = prompt.messages.map((message, i) => messageEditor(message, i === prompt.messages.length - 1));
  const limits = { min: 0, max: prompt.max_temperature, step: "any" };
  const temperature = h("input", { type: "number", required: true, ...limits, value: prompt.temperature });
  const samples = h("input", { type: "number", required: true, min: 1, max: prompt.max_samples, step: 1, value: 1 });
  const button = h("button", { type: "submit" }, "Send");
  const status = h("p", { class: "send-status", role: "status" });
  const responses = h("div", { class: "responses" }, responseCard("Recorded", turn));
  const send = async (event) => {
    event.preventDefault();
    if (button.getAttribute("aria-disabled") === "true") return;
    button.setAttribute("aria-disabled", "true");
    status.classList.remove("send-error");
    status.textContent = prompt.is_loaded ? "Generating …"
      : `Loading ${prompt.policy}, then generating. The first response takes a while …`;
    try {
      const result = await request(url, {
        messages: editors.map(({ changedText }) => changedText()),
        temperature: temperature.valueAsNumber, samples: samples.valueAsNumber,
      });
      prompt.is_loaded = true;
      const name = (i) => (result.responses.length > 1 ? `New response ${i + 1}` : "New response");
      const cards = result.responses.map((response, i) => responseCard(name(i), response));
      responses.replaceChildren(responses.firstChild, ...cards);
      status.textContent = sentPrompt(result);
    } catch (error) {
      status.classList.add("send-error");
      status.textContent = error.message;
    }
    button.setAttribute("aria-disabled", "false");
  };
  const form = h("form", { onsubmit: send },
    h("p", { class: "note" }, "Sent to ", h("b", {}, prompt.policy), ". ", prompt.note,
      prompt.is_policy_of_run && [" Another policy: ", h("code", {}, "webagent view RUNS --policy=PATH_OR_NAME"), "."]),
    editors.map(({ element }) => element),
    h("p", { class: "send-options" },
      h("label", {}, "Temperature ", temperature), h("label", {}, "Samples ", samples), button),
    status);
  return [form, responses];
}

// An unchanged message is sent as null: the server then uses its exact tokens.
function messageEditor({ role, text }, isOpen) {
  const editor = h("textarea", { "aria-label": `Message of the ${role}`, spellcheck: "false" });
  editor.value = text;
  const shownText = editor.value; // a text area changes the ends of lines
  const summary = h("summary", {}, role, h("small", {}, ` ${plural(text.length, "character")}`));
  const element = h("details", { class: "message", open: isOpen }, summary, editor);
  return { element, changedText: () => (editor.value === shownText ? null : editor.value) };
}

function responseCard(title, response) {
  return h("section", { class: "response" }, h("h4", {}, title), decision(response),
    tokenProbabilities(response, false) || h("pre", {}, response.response || "(empty)"));
}

function sentPrompt({ prompt_tokens: count, is_unchanged: isUnchanged, is_recorded_prompt: isRecorded }) {
  const origin = !isUnchanged ? "an edited prompt" : isRecorded ? "the recorded prompt"
    : "the recorded messages, with the tokenizer and chat template of this policy";
  return `Response to ${origin}, ${plural(count, "token")}. It was not executed.`;
}
