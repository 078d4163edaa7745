// Stands for oh-my-pi in the test of the extension: what the first argument lists happens, one event after the other.
import extension from "./belay.mjs";

const handlers = {};
extension({ on: (name, f) => (handlers[name] = f) });
for (const { name, event, session, kept } of JSON.parse(process.argv[2])) {
	const ctx = {
		cwd: "/work-folder",
		model: { id: "lab-model" },
		sessionManager: {
			getSessionId: () => session,
			getSessionFile: () => (kept === false ? undefined : `/s/2026-12-01T10-21-05-893Z_${session}.jsonl`),
			getBranch: () => [],
		},
	};
	await handlers[name]({ type: name, ...event }, ctx);
}
