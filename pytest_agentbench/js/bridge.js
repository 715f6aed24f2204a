// Runs in the page's own world, in every frame, before any script of the page.
// Gives the page window.hermes, and tells the harness what happens, through functions that are
// captured here, so that nothing the page overrides later can silence or forge it.
(() => {
  "use strict";
  const SECRET = "__SECRET__";
  const binding = globalThis[SECRET];
  try { delete globalThis[SECRET]; } catch { /* the harness still listens */ }
  if (typeof binding !== "function") return;

  const { stringify, parse } = JSON;
  const { apply } = Reflect;
  const { defineProperty, getOwnPropertyDescriptor, keys } = Object;
  const { isArray } = Array;
  const NativePromise = Promise;
  const resolved = Promise.resolve.bind(Promise);
  const now = performance.now.bind(performance);
  const slice = String.prototype.slice;
  const toText = String;
  const NativeRangeError = RangeError;
  const later = globalThis.setTimeout;
  const nextFrame = globalThis.requestAnimationFrame;
  const listen = EventTarget.prototype.addEventListener;
  const getter = (type, name) => getOwnPropertyDescriptor(type.prototype, name).get;
  const errorMessage = getter(ErrorEvent, "message");
  const rejectionReason = getter(PromiseRejectionEvent, "reason");
  const isTop = window === window.top;

  const MAX_TEXT = 8 * 1024 * 1024;
  const CUT_TEXT = 1024 * 1024;
  const MAX_DEPTH = 64;
  const MAX_PAYLOADS = 500;
  const MAX_CONSOLE = 200;

  const post = (head, body) => {
    try { binding(stringify(head) + "\n" + (body || "")); } catch { /* the page is going away */ }
  };

  const describe = (value) => {
    try {
      if (value !== null && typeof value === "object" && typeof value.stack === "string" && value.stack) {
        return apply(slice, value.stack, [0, 2000]);
      }
      if (typeof value === "object" && value !== null && !(value instanceof Error)) {
        const text = stringify(value);
        if (typeof text === "string") return apply(slice, text, [0, 2000]);
      }
      return apply(slice, toText(value), [0, 2000]);
    } catch { return "a value that cannot be shown"; }
  };

  // -- uncaught errors ------------------------------------------------------------------------
  const onError = (event) => {
    try {
      if (event.isTrusted) {
        post({ __proto__: null, k: "error" }, describe(apply(errorMessage, event, [])));
      }
    } catch { /* not an error event */ }
  };
  const onRejection = (event) => {
    try {
      if (event.isTrusted) {
        post({ __proto__: null, k: "error" }, "unhandled rejection: " + describe(apply(rejectionReason, event, [])));
      }
    } catch { /* not a rejection event */ }
  };
  const attend = () => {
    apply(listen, window, ["error", onError, true]);
    apply(listen, window, ["unhandledrejection", onRejection, true]);
  };
  attend();
  // these remove all listeners of the window when the document had been loaded
  for (const name of ["open", "write", "writeln"]) {
    const call = Document.prototype[name];
    Document.prototype[name] = { [name](...args) {
      try { return apply(call, this, args); } finally { attend(); }
    } }[name];
  }

  // -- console ---------------------------------------------------------------------------------
  const native = console;
  const debug = native.debug.bind(native);
  let consoleLines = 0;
  const note = (level, args) => {
    consoleLines += 1;
    if (consoleLines > MAX_CONSOLE) {
      if (consoleLines === MAX_CONSOLE + 1) post({ __proto__: null, k: "console", level: "overflow" }, "");
      return;
    }
    let text = "";
    for (let i = 0; i < args.length && i < 20; i++) {
      text += (i ? " " : "") + (typeof args[i] === "string" ? apply(slice, args[i], [0, 2000]) : describe(args[i]));
    }
    post({ __proto__: null, k: "console", level }, apply(slice, text, [0, 2000]));
  };
  for (const level of ["log", "info", "warn", "debug", "trace", "dir", "table"]) {
    native[level] = { [level](...args) { note(level, args); } }[level];
  }
  native.assert = function assert(holds, ...args) { if (!holds) note("assert", args); };
  // a page that puts its own function here has still called console.error
  let inner = null;
  let reported = false;
  const error = function error(...args) {
    if (!reported && consoleLines >= MAX_CONSOLE) {
      reported = true;
      post({ __proto__: null, k: "console", level: "error" }, "console.error, after many lines");
    }
    note("error", args);
    if (inner !== null) return apply(inner, this, args);
  };
  defineProperty(native, "error", {
    configurable: true,
    enumerable: true,
    get: () => error,
    set(value) { inner = typeof value === "function" && value !== error ? value : null; },
  });

  // -- what is still to come -------------------------------------------------------------------
  const due = { __proto__: null };
  const once = { __proto__: null };
  let busyUntil = 0;
  let foreign = false;
  const busy = () => { busyUntil = now() + 800; };
  const wrapTimer = (name, repeats) => {
    const start = globalThis[name];
    const wrapper = function (handler, delay, ...args) {
      if (arguments.length === 0) return apply(start, globalThis, []);
      const wait = typeof delay === "number" && delay > 0 ? delay : 0;
      if (typeof handler !== "function") {
        busy();
        return apply(start, globalThis, [handler, delay, ...args]);
      }
      const id = apply(start, globalThis, [function (...given) {
        if (repeats) due[id] = now() + wait; else { delete due[id]; delete once[id]; }
        return apply(handler, this, given);
      }, delay, ...args]);
      due[id] = now() + wait;
      if (!repeats) once[id] = due[id];
      return id;
    };
    defineProperty(wrapper, "name", { value: name });
    globalThis[name] = wrapper;
  };
  const wrapClear = (name) => {
    const stop = globalThis[name];
    globalThis[name] = { [name](id) { delete due[id]; delete once[id]; return apply(stop, globalThis, [id]); } }[name];
  };
  wrapTimer("setTimeout", false);
  wrapTimer("setInterval", true);
  wrapClear("clearTimeout");
  wrapClear("clearInterval");
  let frames = 0;
  const frameIds = { __proto__: null };
  globalThis.requestAnimationFrame = function requestAnimationFrame(handler) {
    if (typeof handler !== "function") return apply(nextFrame, globalThis, [handler]);
    const id = apply(nextFrame, globalThis, [function (time) {
      if (frameIds[id]) { delete frameIds[id]; frames -= 1; }
      return apply(handler, this, [time]);
    }]);
    frameIds[id] = true;
    frames += 1;
    return id;
  };
  const stopFrame = globalThis.cancelAnimationFrame;
  globalThis.cancelAnimationFrame = function cancelAnimationFrame(id) {
    if (frameIds[id]) { delete frameIds[id]; frames -= 1; }
    return apply(stopFrame, globalThis, [id]);
  };
  // anything else that can call back later: listen for the whole time
  const wrapCall = (owner, name, effect) => {
    const call = owner && owner[name];
    if (typeof call !== "function") return;
    owner[name] = { [name](...args) { effect(); return apply(call, this, args); } }[name];
  };
  wrapCall(globalThis, "fetch", busy);
  wrapCall(globalThis, "requestIdleCallback", busy);
  wrapCall(globalThis, "postMessage", busy);
  wrapCall(XMLHttpRequest.prototype, "send", busy);
  wrapCall(IDBFactory.prototype, "open", busy);
  wrapCall(FileReader.prototype, "readAsText", busy);
  wrapCall(FileReader.prototype, "readAsDataURL", busy);
  if (globalThis.scheduler) {
    wrapCall(Object.getPrototypeOf(scheduler), "postTask", busy);
    wrapCall(Object.getPrototypeOf(scheduler), "yield", busy);
  }
  for (const name of ["Worker", "SharedWorker", "MessageChannel", "BroadcastChannel", "WebSocket", "EventSource"]) {
    const Original = globalThis[name];
    if (typeof Original !== "function") continue;
    const Wrapped = function (...args) { foreign = true; return Reflect.construct(Original, args, new.target || Original); };
    Wrapped.prototype = Original.prototype;
    defineProperty(Wrapped, "name", { value: name });
    for (const key of Object.getOwnPropertyNames(Original)) {
      if (!(key in Function.prototype) && key !== "prototype") {
        defineProperty(Wrapped, key, getOwnPropertyDescriptor(Original, key));
      }
    }
    globalThis[name] = Wrapped;
  }
  const frameCount = getOwnPropertyDescriptor(window, "length").get;
  const animations = Document.prototype.getAnimations;
  const pendingBefore = (end) => {
    if (foreign || frames > 0 || busyUntil > now() || apply(frameCount, window, []) > 0) return true;
    for (const id in due) if (due[id] <= end) return true;
    const running = apply(animations, document, []);
    for (let i = 0; i < running.length; i++) {
      const finish = running[i].effect ? running[i].effect.getComputedTiming().endTime : Infinity;
      if (running[i].playState === "running" && finish !== Infinity) return true;
    }
    return false;
  };
  const sleep = (ms) => new NativePromise((done) => apply(later, globalThis, [done, ms]));
  const frame = () => new NativePromise((done) => {
    apply(nextFrame, globalThis, [() => apply(later, globalThis, [done, 0])]);
    apply(later, globalThis, [done, 100]); // a hidden page has no frames
  });

  // -- window.hermes ---------------------------------------------------------------------------
  let phase = 0;
  let payloads = 0;
  const kept = [0, 0];
  // short payloads that were told already: the same again says nothing new
  const told = { __proto__: null };

  // a copy of *value* that fits: at most CUT_TEXT characters of text and MAX_DEPTH levels
  const prune = (value, depth, state) => {
    if (typeof value === "string") {
      const length = value.length < state.left ? value.length : state.left;
      state.left -= length;
      return length < value.length ? apply(slice, value, [0, length]) : value;
    }
    if (value === null || typeof value === "number" || typeof value === "boolean") { state.left -= 8; return value; }
    if (typeof value !== "object" || depth >= MAX_DEPTH) return null;
    if (isArray(value)) {
      const copy = [];
      for (let i = 0; i < value.length && state.left > 0; i++) copy[i] = prune(value[i], depth + 1, state);
      return copy;
    }
    const copy = { __proto__: null };
    const names = keys(value);
    for (let i = 0; i < names.length && state.left > 0; i++) {
      state.left -= names[i].length;
      copy[names[i]] = prune(value[names[i]], depth + 1, state);
    }
    return copy;
  };

  // whether JSON text is nested deeper than MAX_DEPTH
  const isDeep = (text) => {
    if (text.length <= 2 * MAX_DEPTH) return false;
    let depth = 0, quoted = false;
    for (let i = 0; i < text.length; i++) {
      const char = text[i];
      if (quoted) {
        if (char === "\\") i += 1; else if (char === '"') quoted = false;
      } else if (char === '"') quoted = true;
      else if (char === "{" || char === "[") { depth += 1; if (depth > MAX_DEPTH) return true; }
      else if (char === "}" || char === "]") depth -= 1;
    }
    return false;
  };
  const carry = (payload) => {
    let text;
    try {
      text = stringify(payload);
    } catch (problem) {
      if (!(problem instanceof NativeRangeError)) return { note: "", fault: describe(problem) };
      try {
        return { note: "cut: nested too deeply", text: stringify(prune(payload, 0, { left: CUT_TEXT })) };
      } catch (again) { return { note: "", fault: describe(again) }; }
    }
    if (typeof text !== "string") return { note: "", fault: "it is " + (payload === undefined ? "undefined" : "a " + typeof payload) };
    if (text.length > MAX_TEXT) {
      const size = text.length;
      return { note: "cut: " + size + " characters", text: stringify(prune(parse(text), 0, { left: CUT_TEXT })) };
    }
    if (isDeep(text)) {
      return { note: "cut: nested too deeply", text: stringify(prune(parse(text), 0, { left: MAX_TEXT })) };
    }
    return { note: "", text };
  };

  const sendAction = function sendAction(payload) {
    try {
      payloads += 1;
      const at = phase;
      if (kept[at] <= MAX_PAYLOADS) {
        const { note: remark, fault, text } = arguments.length === 0
          ? { note: "", fault: "sendAction was called without a payload" } : carry(payload);
        if (fault === undefined && text.length < 1000) {
          if (told[at + text]) return resolved({ ok: true, status: "received" });
          told[at + text] = true;
        }
        kept[at] += 1;
        post({
          __proto__: null, k: "payload", phase: at, argc: arguments.length, note: remark,
          fault: fault === undefined ? null : fault,
        }, text);
      }
    } catch { /* never throws into the page */ }
    return resolved({ ok: true, status: "received" });
  };

  if (isTop) {
    const hermes = {};
    defineProperty(hermes, "sendAction", { configurable: true, enumerable: true, get: () => sendAction, set() {} });
    defineProperty(window, "hermes", { configurable: true, enumerable: true, get: () => hermes, set() {} });
    // handed to the harness by reference, so that it needs no name in the page
    debug(SECRET, {
      begin() { phase = 1; },
      // resolves when nothing can happen before *ms* are over, or when they are
      async quiet(ms) {
        const end = now() + ms;
        await frame();
        while (now() < end && pendingBefore(end)) await sleep(15);
        return payloads;
      },
      // resolves when no timer that was set once is due before *ms* are over, or when they are
      async breath(ms) {
        const end = now() + ms;
        await frame();
        const soon = () => {
          for (const id in once) if (once[id] <= end) return true;
          return false;
        };
        while (now() < end && soon()) await sleep(15);
      },
      // resolves as soon as there are more than *seen* payloads, or when *ms* are over, or after
      // *least* when nothing can happen before that
      async payload(seen, ms, least) {
        const begin = now(), end = begin + ms;
        await frame();
        while (payloads <= seen && now() < end && (now() < begin + least || pendingBefore(end))) await sleep(15);
        return payloads;
      },
    });
  }
})();
