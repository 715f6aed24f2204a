// Runs in an isolated world: it shares the DOM with the page, but none of its JavaScript, so that
// pristine functions look at what a person would see.  Only the top frame uses it.
(() => {
  "use strict";
  if (window !== window.top) return;

  const INTERACTIVE = "button,input:not([type=hidden i]),select,textarea,a[href],area[href],summary";
  const ROLES = new Set(("button checkbox combobox gridcell link listbox menuitem menuitemcheckbox menuitemradio " +
    "option radio scrollbar searchbox slider spinbutton switch tab textbox treeitem").split(" "));
  const READ = ["value", "placeholder", "title", "alt", "aria-label", "label"];

  // A form's controls and a document's images stand in for its properties under their names, here
  // too (<input name="matches">): what may be a form or the document is asked through these.
  const { apply } = Reflect;
  const method = (type, name) => {
    const function_ = type.prototype[name];
    return (self, ...args) => apply(function_, self, args);
  };
  const getter = (type, name) => {
    const { get } = Object.getOwnPropertyDescriptor(type.prototype, name);
    return (self) => apply(get, self, []);
  };
  const matchesOf = method(Element, "matches");
  const attribute = method(Element, "getAttribute");
  const hasAttribute = method(Element, "hasAttribute");
  const clientRects = method(Element, "getClientRects");
  const boundingRect = method(Element, "getBoundingClientRect");
  const scrollTo = method(Element, "scrollIntoView");
  const checkVisibility = method(Element, "checkVisibility");
  const htmlFocus = method(HTMLElement, "focus");
  const parentOf = getter(Node, "parentNode");
  const childrenOf = getter(Node, "childNodes");
  const isConnected = getter(Node, "isConnected");
  const shadowOf = getter(Element, "shadowRoot");
  const htmlText = getter(HTMLElement, "innerText");
  const htmlTabIndex = getter(HTMLElement, "tabIndex");
  const bodyOf = getter(Document, "body");
  const rootOf = getter(Document, "documentElement");
  const documentQuery = method(Document, "querySelectorAll");
  const fragmentQuery = method(DocumentFragment, "querySelectorAll");
  const elementAt = method(Document, "elementFromPoint");
  const treeWalker = method(Document, "createTreeWalker");
  const activeOf = getter(Document, "activeElement");
  const query = (root, selector) => (root === document ? documentQuery : fragmentQuery)(root, selector);
  const focus = (element) => (element instanceof HTMLElement ? htmlFocus(element) : element.focus());
  const textOf = (element) => (element instanceof HTMLElement ? htmlText(element) : "");
  const tabIndexOf = (element) => (element instanceof HTMLElement ? htmlTabIndex(element) : element.tabIndex);
  const labelsOf = (element) => (element instanceof HTMLFormElement ? [] : element.labels || []);
  const valueOf = (element) => (element instanceof HTMLFormElement ? "" : element.value);

  const squeeze = (text) => text.replace(/[\s\u00a0]+/g, " ");

  // -- walking: document order, open shadow roots after the element's own place ----------------
  function* elements(root) {
    const walker = treeWalker(document, root, NodeFilter.SHOW_ELEMENT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      yield node;
      const shadow = shadowOf(node);
      if (shadow) yield* elements(shadow);
    }
  }
  const roots = () => {
    const found = [document];
    for (let i = 0; i < found.length; i++) {
      for (const element of query(found[i], "*")) {
        const shadow = shadowOf(element);
        if (shadow) found.push(shadow);
      }
    }
    return found;
  };
  const matches = (selector) => {
    const all = roots();
    if (all.length === 1) return [...documentQuery(document, selector)];
    const found = [];
    for (const element of elements(document)) if (matchesOf(element, selector)) found.push(element);
    return found;
  };

  // -- text ------------------------------------------------------------------------------------
  const treeText = (root) => {
    let text = "";
    const walker = treeWalker(document, root, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_CDATA_SECTION);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const parent = parentOf(node);
      if (!(parent instanceof HTMLStyleElement || parent instanceof SVGStyleElement)) text += node.data;
    }
    return text;
  };
  const texts = () => {
    const parts = [];
    for (const root of roots()) {
      parts.push(treeText(root));
      if (root === document) {
        if (bodyOf(document)) parts.push(textOf(bodyOf(document)));
      } else {
        for (const child of root.children) parts.push(textOf(child));
      }
      for (const field of query(root, "input,textarea,select,output,progress,meter,button")) {
        if (typeof field.value === "string") parts.push(field.value);
      }
      for (const name of READ) {
        for (const element of query(root, `[${name}]`)) parts.push(attribute(element, name));
      }
    }
    return parts.map(squeeze);
  };
  const holds = (strings) => {
    if (strings.length === 0) return [];
    const parts = texts();
    return strings.map((wanted) => parts.some((part) => part.includes(squeeze(wanted))));
  };

  // -- interactive elements --------------------------------------------------------------------
  const interactive = (element) => {
    if (matchesOf(element, INTERACTIVE)) return true;
    const role = attribute(element, "role");
    if (role && role.toLowerCase().split(/\s+/).some((name) => ROLES.has(name))) return true;
    const editable = attribute(element, "contenteditable");
    if (editable !== null && editable.toLowerCase() !== "false") return true;
    if ((attribute(element, "draggable") || "").toLowerCase() === "true") return true;
    if (hasAttribute(element, "tabindex") && tabIndexOf(element) >= 0) return true;
    return false;
  };
  // *listening*: nodes that have a listener of a person's events
  const count = (listening) => {
    let total = 0;
    for (const element of elements(document)) {
      if (interactive(element)) total += 1;
      else if (listening.has(element) && element !== rootOf(document) && element !== bodyOf(document)) total += 1;
    }
    return total;
  };

  // -- where a person would click --------------------------------------------------------------
  const contains = (outer, inner) => {
    for (let node = inner; node; node = node instanceof ShadowRoot ? node.host : parentOf(node)) if (node === outer) return true;
    return false;
  };
  const boxed = (element) => {
    for (const rect of clientRects(element)) if (rect.width > 0 && rect.height > 0) return true;
    return false;
  };
  const visible = (element) =>
    boxed(element) && checkVisibility(element, { opacityProperty: true, visibilityProperty: true });
  const hit = (x, y) => {
    let found = elementAt(document, x, y);
    while (found && shadowOf(found)) {
      const deeper = shadowOf(found).elementFromPoint(x, y);
      if (!deeper || deeper === found) break;
      found = deeper;
    }
    return found;
  };
  const accepts = (element, found) => {
    if (!found) return false;
    if (contains(element, found)) return true;
    for (const label of labelsOf(element)) if (contains(label, found)) return true;
    return false;
  };
  // a point of *element* that the mouse reaches, or null
  const reach = (element) => {
    // what sticks to an edge of the window may cover one place and not another
    for (const block of ["", "center", "start", "end"]) {
      if (block) scrollTo(element, { block, inline: "center", behavior: "instant" });
      const box = boundingRect(element);
      const first = [...clientRects(element)].find((rect) => rect.width > 0 && rect.height > 0);
      for (const rect of first && first.width !== box.width ? [box, first] : [box]) {
        const x = rect.left + rect.width / 2, y = rect.top + rect.height / 2;
        if (x < 0 || y < 0 || x >= innerWidth || y >= innerHeight) continue;
        if (accepts(element, hit(x, y))) return { x, y };
      }
    }
    return null;
  };
  const outside = (element) => {
    const rect = boundingRect(element);
    const x = rect.left + rect.width / 2, y = rect.top + rect.height / 2;
    return x < 0 || y < 0 || x >= innerWidth || y >= innerHeight;
  };
  // {point} or {reason}: whether and where *element* can be clicked
  const target = (element) => {
    if (matchesOf(element, ":disabled")) return { reason: "is disabled" };
    if (visible(element)) {
      const point = reach(element);
      if (point) return { point, via: element };
    }
    if (matchesOf(element, "input[type=checkbox i],input[type=radio i]")) {
      for (const label of labelsOf(element)) {
        if (!visible(label)) continue;
        const point = reach(label);
        if (point) return { point, via: label };
      }
    }
    if (!visible(element)) return { reason: "is not visible" };
    return { reason: outside(element) ? "is out of the page" : "is covered by another element" };
  };
  const locate = (selector) => {
    const found = matches(selector);
    let reason = null;
    for (const element of found) {
      const answer = target(element);
      if (answer.point) return { element, ...answer };
      reason = reason || answer.reason;
    }
    return { reason: reason === null ? "matches no element" : found.length === 1 ? reason : `${reason} (first of ${found.length})` };
  };

  // -- clicks ------------------------------------------------------------------------------------
  const clicked = new WeakSet();
  const places = new Set();
  const path = (element) => {
    let text = "";
    for (let node = element, parent; node && (parent = parentOf(node)); node = parent) {
      text = "/" + [...childrenOf(parent)].filter((n) => n instanceof Element).indexOf(node) + text;
    }
    return text;
  };
  const signs = (element) => {
    const words = squeeze(textOf(element) || valueOf(element) || attribute(element, "aria-label") || "").trim();
    const rect = boundingRect(element);
    const x = Math.round(rect.left + scrollX), y = Math.round(rect.top + scrollY);
    return [`${x},${y} ${words}`, `${path(element)} ${words}`];
  };
  let aimed = null;
  let events = 0;
  let pressed = false;
  let landed = false;
  let missed = false;
  let captured = false;
  addEventListener("gotpointercapture", () => { captured = true; }, { capture: true });
  const watch = (event) => {
    events += 1;
    if (!aimed) return;
    // an element that took the place of the one aimed at is as good to a person
    const { element, via, selector } = aimed;
    for (const node of event.composedPath()) {
      if (node === element || node === via || (node instanceof Element && matchesOf(node, selector))) {
        if (event.type === "mousedown") pressed = true;
        if (event.type === "click") landed = true;
        return;
      }
    }
    // the button went up on something else, though nothing captured the pointer; where the
    // element is by now does not tell: what turns may be back already
    if (event.type === "mouseup" && !captured && isConnected(aimed.element)) missed = true;
  };
  // the button went down on it, but it is not there any more
  const ranAway = () => {
    const { element, via, point } = aimed;
    const there = elementAt(document, point.x, point.y);
    return isConnected(element) && !(there && (contains(element, there) || (via && contains(via, there))));
  };
  for (const type of ["mousedown", "mouseup", "click"]) addEventListener(type, watch, { capture: true });
  const aim = (selector, found) => {
    if (!found.point) return { reason: found.reason };
    aimed = { ...found, selector };
    events = 0;
    pressed = landed = missed = captured = false;
    clicked.add(found.element);
    for (const sign of signs(found.element)) places.add(sign);
    return { x: found.point.x, y: found.point.y };
  };

  let kept = [];
  globalThis.__ab = {
    // the document and all open shadow roots: how many, then one after the other
    roots: () => (kept = roots()).length,
    root: (number) => kept[number],
    look: ({ strings, selectors, count: wanted }) => ({
      strings: holds(strings),
      selectors: selectors.map((selector) => matches(selector).length > 0),
      count: wanted ? count(new Set()) : null,
    }),
    count: (...listening) => count(new Set(listening)),
    find: (selector) => {
      const found = locate(selector);
      return found.point ? {} : { reason: found.reason };
    },
    aim: (selector) => aim(selector, locate(selector)),
    // false only when mouse events came and made no click on what was aimed at
    landed: () => landed || events === 0 || (pressed && !missed && !ranAway()),
    // the next match that was not clicked yet: first one at a place and with a text of its own
    next: (selector) => {
      let second = null;
      for (const element of matches(selector)) {
        if (clicked.has(element)) continue;
        const answer = target(element);
        if (!answer.point) continue;
        if (!signs(element).some((sign) => places.has(sign))) return aim(selector, { element, ...answer });
        second = second || element;
      }
      return second ? aim(selector, { element: second, ...target(second) }) : { reason: "no further element" };
    },
    async wait(selector, ms) {
      const end = performance.now() + ms;
      for (;;) {
        const found = locate(selector);
        if (found.point || performance.now() >= end) return found.point ? {} : { reason: found.reason };
        await new Promise((done) => setTimeout(done, 50));
      }
    },
    setRange: (selector, value) => {
      const { element, reason } = locate(selector);
      if (!element) return { reason };
      if (!(element instanceof HTMLInputElement)) return { reason: "is not an input" };
      focus(element);
      element.value = value;
      element.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
      element.dispatchEvent(new Event("change", { bubbles: true }));
      return { reached: element.value };
    },
    // focuses a text field and selects its content, so that typing replaces it
    focusText: (selector) => {
      const { element, reason } = locate(selector);
      if (!element) return { reason };
      const typed = element instanceof HTMLTextAreaElement || element.isContentEditable ||
        (element instanceof HTMLInputElement && /^(text|search|url|tel|email|password|number)$/.test(element.type));
      if (element.readOnly) return { reason: "is read-only" };
      focus(element);
      if (typed) {
        if (element.select) element.select(); else getSelection().selectAllChildren(element);
        return { typed: true };
      }
      return element instanceof HTMLInputElement ? { typed: false } : { reason: "is not a text field" };
    },
    setValue: (selector, value) => {
      const { element, reason } = locate(selector);
      if (!element) return { reason };
      element.value = value;
      element.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
      element.dispatchEvent(new Event("change", { bubbles: true }));
      return element.value === value ? { reached: value } : { reason: `does not take the value ${JSON.stringify(value)}` };
    },
    blur: () => { const active = activeOf(document); if (active) active.blur(); return {}; },
    focus: (selector) => {
      const { element, reason } = locate(selector);
      if (!element) return { reason };
      focus(element);
      return {};
    },
    select: (selector, value) => {
      const { element, reason } = locate(selector);
      if (!element) return { reason };
      if (!(element instanceof HTMLSelectElement)) return { reason: "is not a select" };
      const all = [...element.options];
      const option = all.find((o) => o.value === value) || all.find((o) => squeeze(o.label).trim() === squeeze(value).trim());
      if (!option || option.disabled) return { reason: `has no option ${JSON.stringify(value)}` };
      focus(element);
      element.value = option.value;
      option.selected = true;
      element.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
      element.dispatchEvent(new Event("change", { bubbles: true }));
      return { reached: option.value };
    },
    checked: (selector) => {
      const { element, reason } = locate(selector);
      if (!element) return { reason };
      const state = matchesOf(element, "input[type=checkbox i],input[type=radio i]") ? element.checked
        : attribute(element, "aria-checked") === "true";
      return { checked: state };
    },
    page: () => ({ text: squeeze(bodyOf(document) ? textOf(bodyOf(document)) : "").slice(0, 200000),
                   html: rootOf(document) ? rootOf(document).outerHTML.slice(0, 2000000) : "" }),
  };
})();
