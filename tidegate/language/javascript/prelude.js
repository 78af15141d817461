// Runs once in each context, before any script. It takes away what would make a result depend on the machine, the time or an earlier
// call: the clock, chance, the local time zone, garbage collection, and every object that scripts share and could write to.
// It returns how values come in and go out.
(function () {
  "use strict";
  const RealDate = Date, realParse = Date.parse, utc = Date.UTC;
  const dates = RealDate.prototype;
  const define = (owner, name, value) =>
    Object.defineProperty(owner, name, { value, writable: true, configurable: true, enumerable: false });

  // Time: no clock, and the local zone is UTC.
  const refuseClock = () => { throw new Error("there is no clock: take the time from the event"); };
  const hasZone = (text) => /:\d{2}.*([+-]\d{2}:?\d{2}|Z|\b(UT|UTC|GMT|[ECMP][SD]T)\b.*)\s*$/i.test(text);
  const isDateOnly = (text) => /^\s*[+-]?\d{4,6}(-\d{2}){0,2}\s*$/.test(text);
  const parse = (value) => {
    const text = String(value);
    if (isDateOnly(text) || hasZone(text)) return realParse(text);
    for (const zone of ["Z", " Z", " GMT"]) {
      const time = realParse(text + zone);
      if (time === time) return time;
    }
    return NaN;
  };
  const timeOf = (value) => {
    if (value instanceof RealDate) return dates.getTime.call(value);
    const isObject = typeof value === "object" && value !== null;
    const primitive = isObject ? value[Symbol.toPrimitive] ? value[Symbol.toPrimitive]("default") : value.valueOf() : value;
    return typeof primitive === "string" ? parse(primitive) : isObject && typeof primitive === "object" ? parse(value) : Number(primitive);
  };
  const StillDate = function Date(...parts) {
    if (new.target === undefined || parts.length === 0) refuseClock();
    return Reflect.construct(RealDate, [parts.length === 1 ? timeOf(parts[0]) : utc(...parts)], new.target);
  };
  StillDate.prototype = dates;
  define(dates, "constructor", StillDate);
  define(StillDate, "UTC", utc);
  define(StillDate, "parse", parse);
  define(StillDate, "now", refuseClock);
  Object.defineProperty(StillDate, "length", { value: 7 });
  for (const name of Object.getOwnPropertyNames(dates)) {
    const local = name.replace("UTC", "");
    if (local !== name && local in dates && typeof dates[name] === "function") define(dates, local, dates[name]);
  }
  define(dates, "getTimezoneOffset", function () { return this.getTime() * 0; });
  define(dates, "getYear", function () { return this.getUTCFullYear() - 1900; });
  const days = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
  const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const two = (number) => String(number).padStart(2, "0");
  const isInvalid = (date) => date.getTime() !== date.getTime();
  const clockOf = (date) => `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}:${two(date.getUTCSeconds())}`;
  const texts = {
    toDateString: (date) =>
      `${days[date.getUTCDay()]} ${months[date.getUTCMonth()]} ${two(date.getUTCDate())} ${String(date.getUTCFullYear()).padStart(4, "0")}`,
    toTimeString: (date) => `${clockOf(date)} GMT+0000 (Coordinated Universal Time)`,
    toString: (date) => `${texts.toDateString(date)} ${texts.toTimeString(date)}`,
    toLocaleDateString: (date) => `${date.getUTCMonth() + 1}/${date.getUTCDate()}/${date.getUTCFullYear()}`,
    toLocaleTimeString: (date) =>
      `${date.getUTCHours() % 12 || 12}:${two(date.getUTCMinutes())}:${two(date.getUTCSeconds())} ${date.getUTCHours() < 12 ? "AM" : "PM"}`,
    toLocaleString: (date) => `${texts.toLocaleDateString(date)}, ${texts.toLocaleTimeString(date)}`,
  };
  for (const name of Object.keys(texts)) {
    define(dates, name, { [name]() { return isInvalid(this) ? "Invalid Date" : texts[name](this); } }[name]);
  }
  globalThis.Date = StillDate;

  // Chance, time that passes, other threads, and garbage collection.
  define(Math, "random", () => { throw new Error("there is no chance: equal events must give equal results"); });
  for (const name of ["performance", "queueMicrotask", "WeakRef", "FinalizationRegistry", "SharedArrayBuffer", "Atomics"]) {
    delete globalThis[name];
  }

  // The engine cannot be interrupted in these; an array with a billion holes would keep them busy for hours.
  const LENGTH_MAX = 2 ** 24;
  for (const name of ["join", "toString", "toLocaleString", "reverse", "toReversed", "sort", "toSorted", "copyWithin", "with", "splice"]) {
    const run = Array.prototype[name];
    if (run === undefined) continue;
    const bounded = { [name](...args) {
      if (this !== null && this !== undefined && this.length > LENGTH_MAX) throw new RangeError(`an array of more than ${LENGTH_MAX}`);
      return run.apply(this, args);
    } }[name];
    Object.defineProperty(bounded, "length", { value: run.length });
    define(Array.prototype, name, bounded);
  }

  // Objects that all calls share are frozen. What is inherited from one may still be overridden in an object of the script.
  const settable = (owner, name) => {
    const { value } = Object.getOwnPropertyDescriptor(owner, name);
    Object.defineProperty(owner, name, {
      enumerable: false, configurable: false,
      get() { return value; },
      set(given) {
        if (this === owner || this === null || typeof this !== "object" && typeof this !== "function") return;
        Object.defineProperty(this, name, { value: given, writable: true, enumerable: true, configurable: true });
      },
    });
  };
  const errors = [Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError, AggregateError, InternalError];
  const overridden = [[Object.prototype, ["constructor", "toString", "toLocaleString", "valueOf", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable"]],
    [Array.prototype, ["toString", "constructor"]], [Function.prototype, ["toString", "constructor", "name"]],
    ...errors.map((error) => [error.prototype, ["name", "message", "toString", "constructor"]])];
  for (const [owner, names] of overridden) {
    for (const name of names) if ("value" in (Object.getOwnPropertyDescriptor(owner, name) || {})) settable(owner, name);
  }
  const isFrozen = new Set();
  const freeze = (value) => {
    if (value === null || typeof value !== "object" && typeof value !== "function" || isFrozen.has(value)) return;
    isFrozen.add(value);
    for (const key of Reflect.ownKeys(value)) {
      const property = Object.getOwnPropertyDescriptor(value, key);
      freeze(property.value);
      freeze(property.get);
      freeze(property.set);
    }
    freeze(Object.getPrototypeOf(value));
    Object.freeze(value);
  };
  const hidden = [
    function* () {}, async function () {}, async function* () {}, [][Symbol.iterator](), new Map()[Symbol.iterator](),
    new Set()[Symbol.iterator](), ""[Symbol.iterator](), "".matchAll(/./g), (function* () {})(), (async function* () {})(), Object(1n),
  ];
  // Values in and out. A value that Python cannot take as it is goes out as [letter of its kind, value].
  const LOWEST = -(2n ** 63n), HIGHEST = 2n ** 63n;
  const stringify = JSON.stringify;
  const jsonOf = (value) => {
    const text = stringify(value);
    if (!/\\ud[89a-f]/i.test(text)) return text;
    return stringify(value, (_, part) => (typeof part === "string" ? part.toWellFormed() : part));
  };
  const out = (value) => {
    switch (typeof value) {
      case "number": case "boolean": return value;
      case "undefined": return null;
      case "string": return value.indexOf("\0") < 0 && value.isWellFormed() ? value : ["s", value.toWellFormed()];
      case "bigint":
        if (value < LOWEST || value >= HIGHEST) throw new RangeError("a BigInt beyond 64 bits is no bigint");
        return ["i", String(value)];
      case "object":
        if (value === null) return null;
        if (value instanceof RealDate) return ["t", dates.getTime.call(value)];
        if (Array.isArray(value)) return ["a", jsonOf(value)];
        if (value instanceof Number || value instanceof String || value instanceof Boolean) return out(value.valueOf());
        if (value instanceof Error || value instanceof Promise) throw new TypeError(`it returned ${value instanceof Error ? `an error, ${value}` : "a promise"}`);
        return ["r", jsonOf(value)];
      default:
        throw new TypeError(`it returned a ${typeof value}`);
    }
  };
  const date = (time) => (time === null ? null : new RealDate(time));
  const json = (text) => (text === null ? null : JSON.parse(text));
  // A value within rows of JSON: [time] is a date, [0, value] a record or an array.
  const within = (value) => (value === null || typeof value !== "object" ? value : value.length === 1 ? new RealDate(value[0]) : value[1]);
  // An aggregate: *make* returns a new object of the script.
  const aggregate = (make) => {
    let state = null;
    return {
      begin() { state = make(); state.init(); },
      feed(text) { for (const row of JSON.parse(text)) state.accumulate(...row.map(within)); },
      end() { const result = out(state.computeResult()); state = null; return result; },
    };
  };
  // Freezes a function with what belongs to it; returns its name.
  const freezeFunction = (value) => (typeof value === "function" ? (freeze(value), value.name) : null);
  const tools = { out, date, json, aggregate, freeze: freezeFunction };
  hidden.forEach(freeze);
  freeze(globalThis);
  return tools;
})()
