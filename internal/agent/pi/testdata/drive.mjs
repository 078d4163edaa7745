// Stands for pi in the tests of the extension: one event a line comes in, what its handler gave goes out.
import * as readline from "node:readline";
import extension from "./belay.mjs";

const handlers = {};
extension({ on: (name, f) => ((handlers[name] ??= []), handlers[name].push(f)) });
const ctx = {
	cwd: "/work-folder",
	model: { id: "lab-model" },
	sessionManager: { getSessionId: () => "sess-1", getSessionFile: () => "/s/1.jsonl", getBranch: () => [] },
};
const broken = {
	get sessionManager() {
		throw new Error("this context is stale");
	},
};
for await (const line of readline.createInterface({ input: process.stdin })) {
	const { event, data, kind } = JSON.parse(line);
	const c = kind === "broken" ? broken : kind === "unkept" ? { ...ctx, sessionManager: { getSessionId: () => "x", getSessionFile: () => undefined } } : ctx;
	const began = Date.now();
	let result;
	for (const f of handlers[event] ?? []) result = (await f({ type: event, ...data }, c)) ?? result;
	console.log(JSON.stringify({ event, ms: Date.now() - began, text: result?.message?.content ?? "" }));
}
