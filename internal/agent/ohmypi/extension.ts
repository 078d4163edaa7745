// belay's extension for oh-my-pi: it tells the belay daemon what oh-my-pi does, and puts into the context what belay has to
// say after a crash. Written by `belay install oh-my-pi`, taken out again by `belay uninstall oh-my-pi`.
//
// oh-my-pi waits for no handler here but one: before the first turn after a start it waits for belay's word, a second at
// most. Nothing in here may fail the agent: each handler catches what it throws. Sessions that oh-my-pi does not keep
// (--no-session) are not reported.

import { bound, boundValue, makeLine } from "./line.js";

const BRIEF_MS = 1000; // the longest that the first turn waits
const END_MS = 500; // the longest that the end of the program waits for the last answers

/** The words of a message: no thinking, no calls, no bytes of images. */
const words = (content) =>
	typeof content === "string"
		? bound(content)
		: (content ?? []).filter((b) => b?.type === "text" || b?.type === "image").map((b) => ({ type: b.type, text: b.text && bound(b.text) }));

/** The last answer of a run, without what the model thought. */
function lastAnswer(messages) {
	const m = (messages ?? []).findLast((m) => m?.role === "assistant");
	return m && { role: m.role, content: words(m.content), stopReason: m.stopReason, errorMessage: m.errorMessage && bound(m.errorMessage) };
}

export default function (pi) {
	const uid = process.getuid?.();
	if (uid === undefined || process.env.BELAY_INTERNAL === "1") return;
	const line = makeLine("oh-my-pi", uid, ["session_id", "session_file", "cwd"]);
	let first = false; // the next turn is the first after a start
	let late = ""; // belay's word that came too late for its turn
	let whose; // the session of the newest event

	function tell(event, ctx, body, done, urgent) {
		const file = ctx.sessionManager.getSessionFile();
		const id = ctx.sessionManager.getSessionId();
		if (!file || !id) return undefined;
		whose = { session_id: id, session_file: file, cwd: ctx.cwd };
		return line.send(event, { ...whose, model: ctx.model?.id, ...body }, ctx.cwd, done, urgent);
	}

	function on(name, handler) {
		pi.on(name, (event, ctx) => {
			try {
				return handler(event, ctx);
			} catch {
				return undefined;
			}
		});
	}

	function started(event, ctx) {
		first = event.reason !== "new";
		const has_words = ctx.sessionManager.getBranch().some((e) => e?.type === "message");
		tell("session_start", ctx, { reason: event.reason, has_words });
	}

	on("session_start", started);

	// The one before ends without a word of its own.
	on("session_switch", (event, ctx) => {
		if (whose) line.send("session_shutdown", { ...whose, reason: event.reason }, whose.cwd);
		started(event, ctx);
	});

	on("before_agent_start", async (event, ctx) => {
		try {
			let come; // ends the wait
			const answered = (text) => {
				if (come) come(text);
				else if (text) late = text;
			};
			const body = { prompt: bound(event.prompt ?? ""), images: event.images?.length ?? 0 };
			const asked = tell("before_agent_start", ctx, body, answered, first);
			let text = late;
			late = "";
			if (asked && first) {
				first = false;
				let timer;
				const word = await new Promise((resolve) => {
					come = resolve;
					timer = setTimeout(resolve, BRIEF_MS, "");
				});
				clearTimeout(timer);
				come = undefined;
				text = word || text;
			}
			if (text) return { message: { customType: "belay", content: text, display: true } };
		} catch {} // the turn goes on without
		return undefined;
	});

	on("tool_execution_start", (event, ctx) => {
		tell("tool_execution_start", ctx, { toolCallId: event.toolCallId, toolName: event.toolName, args: boundValue(event.args) });
	});

	on("tool_execution_end", (event, ctx) => {
		const result = { content: words(event.result?.content) };
		tell("tool_execution_end", ctx, { toolCallId: event.toolCallId, toolName: event.toolName, isError: event.isError === true, result });
	});

	// A run that goes on by itself, after an error or an empty answer, has not ended.
	on("agent_end", (event, ctx) => {
		if (!event.willContinue) tell("agent_end", ctx, { message: lastAnswer(event.messages) });
	});

	on("session_before_compact", (_, ctx) => {
		tell("session_before_compact", ctx, {});
	});

	on("session_compact", (event, ctx) => {
		tell("session_compact", ctx, { summary: bound(event.compactionEntry?.summary ?? "") });
	});

	on("session_shutdown", (_, ctx) => {
		tell("session_shutdown", ctx, {});
		return line.end(END_MS);
	});
}
