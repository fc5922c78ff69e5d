// Reports what a person does in this document as actions of the agent (recorder.py). The page does
// not receive the events of the person: the caller executes each action as the agent does, and the
// page receives the events of that. While an action is executed and while a document loads, only
// the clicks and keys of the action pass.
"use strict";
if (!window.__webagentRecorder) {
  (() => {
    const CLICK_EVENTS = "pointerup mousedown mouseup click auxclick contextmenu".split(" ");
    const POINTER_EVENTS = new Set([...CLICK_EVENTS, "dblclick", "dragstart"]);
    const EVENTS = [
      ...POINTER_EVENTS,
      ..."pointerdown wheel keydown keypress keyup beforeinput input change".split(" "),
      ..."pointermove pointerover pointerout pointerenter pointerleave".split(" "),
      ..."mousemove mouseover mouseout mouseenter mouseleave".split(" "),
      ..."focus blur focusin focusout copy cut paste drop".split(" "),
    ];
    const MODIFIERS = new Set("Shift Control Alt Meta AltGraph CapsLock NumLock".split(" "));
    const BUTTON_TYPES = /^(button|submit|reset|image|file|checkbox|radio)$/;
    const PICKER_TYPES = /^(date|time|month|week|datetime-local|color|range)$/;
    const WHEEL_PAUSE = 300; // ms without a turn of the wheel between two scroll actions

    let listening = null; // {ids, scrolls, tab} while actions are reported
    let budget = { clicks: 0, keys: [] }; // events of the executed action that still pass
    let edit = null; // {field, state, byPointer}: field with its state before the person's changes
    const passing = new Set(); // events of a click that has begun that still pass, each once
    let isNativeGesture = false; // whether the browser handles it: a caret, a drop-down list
    let lastWheelTime = -WHEEL_PAUSE;
    const heldKeys = new Set(); // codes of the pressed keys that the page did not receive

    // --- elements and fields --------------------------------------------------------------------

    /** Returns the id of a node in the observation; null if it has none. */
    function idOf(node) {
      // The outermost document that can access a frame assigns the ids of its elements.
      for (let view = window; ; view = view.parent) {
        try {
          const id = String(view.__webagent?.idOf(node));
          if (listening.ids.has(id)) return id;
        } catch {
          return null; // a document of another origin
        }
        if (view === view.parent) return null;
      }
    }

    /** Returns the id of the innermost listed element at an event, or of the field of a label. */
    function idAt(event) {
      for (const node of event.composedPath()) {
        const id = idOf(node) ?? (node.localName === "label" ? idOf(node.control) : null);
        if (id !== null) return id;
      }
      return null;
    }

    /** Returns the field at an event whose value a person can change; null if there is none. */
    function fieldAt(event) {
      let [node] = event.composedPath();
      if (!(node instanceof HTMLElement)) return null;
      if (node.isContentEditable) {
        while (node.parentElement?.isContentEditable) node = node.parentElement;
        return node;
      }
      const field = node.closest("input, textarea, select"); // an event of a list is at its option
      const isButton = field?.localName === "input" && BUTTON_TYPES.test(field.type);
      return !field || isButton || field.disabled || field.readOnly ? null : field;
    }

    const isText = (field) => field.localName !== "select" && !PICKER_TYPES.test(field.type);
    const isMultiline = (field) => field.localName === "textarea" || field.isContentEditable;
    const stateOf = (field) =>
      field.localName === "select"
        ? Array.from(field.options, (option) => option.selected).join()
        : (field.value ?? field.innerText);
    const isEdited = () => edit !== null && stateOf(edit.field) !== edit.state;

    /** Restores the state of a field, so that the action starts from the observed page. */
    function restore(field, state) {
      if (field.isContentEditable) return; // its action replaces all of the content
      if (field.localName === "select") {
        state.split(",").forEach((flag, i) => (field.options[i].selected = flag === "true"));
        return;
      }
      // The setter of the prototype bypasses the one that a framework defines on the element.
      const { prototype } = field.localName === "input" ? HTMLInputElement : HTMLTextAreaElement;
      Object.getOwnPropertyDescriptor(prototype, "value").set.call(field, state);
    }

    /** Ends the edit: restores its field and returns its action in a list, empty without a change. */
    function takeEdit() {
      if (!isEdited()) return [];
      const { field, state } = edit;
      edit = null;
      let kind = "Type";
      let value = stateOf(field);
      if (field.localName === "select") {
        const flags = state.split(",");
        const option = [...field.options].find((o, i) => o.selected && flags[i] === "false");
        [kind, value] = ["Select Dropdown Option", option?.label ?? ""];
      }
      restore(field, state);
      // The page did not receive the focus of these fields, and receives it with the action.
      if (!isText(field)) field.blur();
      return [{ kind, element: idOf(field), value }];
    }

    // --- reports --------------------------------------------------------------------------------

    function report(...actions) {
      const switchTab = { kind: "Switch Tab", value: listening.tab };
      const all = listening.tab === null ? [...takeEdit(), ...actions] : [switchTab];
      listening = null;
      window.__webagentRecord(all);
    }

    function onPointerDown(event) {
      const field = fieldAt(event);
      // The first click into a text field is an action, because pages respond to it.
      isNativeGesture =
        field !== null && (!isText(field) || field.getRootNode().activeElement === field);
      if (!isNativeGesture) return;
      if (isEdited() && edit.field !== field) return report();
      if (edit?.field !== field) edit = { field, state: stateOf(field) };
      edit.byPointer = true;
    }

    function onKeyDown(event) {
      const { key } = event;
      heldKeys.add(event.code);
      if (MODIFIERS.has(key) || event.isComposing) return;
      const field = fieldAt(event);
      const shift = event.shiftKey && key.length > 1 && "Shift";
      const modifiers = [event.ctrlKey && "Control", event.altKey && "Alt", shift];
      const value = [...modifiers, key === " " ? "Space" : key].filter(Boolean).join("+");
      const element = idOf(event.composedPath()[0]);
      const press =
        value === "Enter" ? { kind: "Press Enter", element } : { kind: "Press", element, value };
      if (field) {
        if (edit?.field !== field) {
          if (isEdited()) return report();
          edit = { field, state: stateOf(field) };
        }
        edit.byPointer = false;
        const isLineEnd = key === "Enter" && isMultiline(field) && isEdited();
        if (!/^(Enter|Tab|Escape)$/.test(key) || isLineEnd) return; // the browser edits the field
        event.preventDefault();
        if (!isEdited()) return report(press);
        // Tab ends the text; Enter after a line of text is the agent's Search.
        const [action] = takeEdit();
        if (key === "Enter" && action.kind === "Type") action.kind = "Search";
        return report(action, ...(key === "Escape" ? [press] : []));
      }
      event.preventDefault();
      if (!event.repeat) report(press);
    }

    function onEventOfPerson(event) {
      switch (event.type) {
        case "pointerdown":
          return onPointerDown(event);
        case "keydown":
          return onKeyDown(event);
        case "keyup":
          return heldKeys.delete(event.code);
        case "wheel": {
          if (!listening.scrolls) return; // the observation contains the whole page
          event.preventDefault();
          const isNew = event.timeStamp - lastWheelTime >= WHEEL_PAUSE;
          lastWheelTime = event.timeStamp;
          const kind = event.deltaY > 0 ? "Scroll Down" : "Scroll Up";
          return isNew && event.deltaY && report({ kind });
        }
        case "change": {
          const isChoice = edit?.byPointer && event.target.matches("select, [type=range]");
          return isChoice && isEdited() && report();
        }
        case "mousedown":
        case "auxclick":
        case "dragstart":
        case "drop":
          return isNativeGesture || event.preventDefault();
        case "contextmenu":
        case "click":
          if (isNativeGesture) return;
          event.preventDefault();
          report({
            kind: event.type === "contextmenu" ? "Right Click" : event.shiftKey ? "Hover" : "Click",
            element: idAt(event),
          });
      }
    }

    /** Returns whether the page does not receive an event while no actions are reported. */
    function isBlocked(event) {
      switch (event.type) {
        // A click of the person cannot be distinguished from that of the action, and their events
        // may interleave: the events of exactly one click pass.
        case "pointerdown":
          if (budget.clicks === 0) return true;
          budget.clicks = 0;
          CLICK_EVENTS.forEach((type) => passing.add(type));
          return false;
        case "keydown": {
          const index = budget.keys.indexOf(event.key);
          if (index < 0) heldKeys.add(event.code);
          else budget.keys.splice(index, 1);
          return index < 0;
        }
        case "keyup":
          return heldKeys.delete(event.code);
        case "wheel":
          lastWheelTime = event.timeStamp;
          return true;
        case "click":
        case "auxclick":
          if (event.detail === 0) return false; // without a number of clicks, it is that of a key
          if (!passing.has(event.type)) return true;
          passing.clear();
          return false;
        default:
          return POINTER_EVENTS.has(event.type) && !passing.delete(event.type);
      }
    }

    function onEvent(event) {
      if (!event.isTrusted) return; // of a script of the page
      if (listening) {
        event.stopImmediatePropagation();
        onEventOfPerson(event);
      } else if (isBlocked(event)) {
        event.stopImmediatePropagation();
        // Without its default, a pointerdown would suppress the mouse events of the action too.
        if (event.type !== "pointerdown") event.preventDefault();
      }
    }

    for (const type of EVENTS)
      window.addEventListener(type, onEvent, { capture: true, passive: false });

    // --- calls of recorder.py -------------------------------------------------------------------

    /** Reports the next action. `tab` is the number of a tab that is not active, otherwise null. */
    function listen({ ids, scrolls, tab }) {
      edit = null;
      passing.clear();
      listening = { ids: new Set(ids), scrolls, tab };
    }

    /** Stops listening; returns the action of an unfinished edit in a list. */
    function stop() {
      const actions = listening ? takeEdit() : [];
      listening = null;
      return actions;
    }

    /** Lets the clicks and keys of an action pass from now on. */
    function pass(newBudget) {
      listening = null;
      budget = newBudget;
    }

    const isListening = () => listening !== null;
    Object.defineProperty(window, "__webagentRecorder", {
      value: { listen, stop, pass, isListening },
    });
  })();
}
