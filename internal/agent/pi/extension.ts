// belay's extension for pi: it tells the belay daemon what pi does, and puts into the context what belay has to say after a
// crash. Written by `belay install pi`, taken out again by `belay uninstall pi`.
//
// pi waits for no handler here but one: before the first turn after a start it waits for belay's word, a second at most.
// Nothing in here may fail the agent: each handler catches what it does. Nothing is told of a session that pi itself does
// not keep (--no-session).
//
// It holds no type annotations, so that every Node can run it as it is.

import { bound, boundValue, makeLine } from "./line.js";

const BRIEF_MS = 1000; // the longest that the first turn waits

/** The words of a message: no thinking, no calls, no bytes of images. */
const textBlocks = (content) =>
	typeof content === "string"
		? bound(content)
		: (content ?? []).filter((b) => b?.type === "text" || b?.type === "image").map((b) => ({ type: b.type, text: b.text && bound(b.text) }));

/** The last answer of a run, without what the model thought. */
function lastAnswer(messages) {
	const m = (messages ?? []).findLast?.((m) => m?.role === "assistant");
	if (!m) return undefined;
	return { role: m.role, content: textBlocks(m.content), stopReason: m.stopReason, errorMessage: m.errorMessage && bound(m.errorMessage), timestamp: m.timestamp };
}

export default function (pi) {
	const uid = process.getuid?.();
	if (uid === undefined || process.env.BELAY_INTERNAL === "1") return;
	const line = makeLine("pi", uid, ["session_id", "session_file", "cwd"]);
	let first = false; // the next turn is the first after a start
	let late = ""; // belay's word that came too late for its turn
	let answer; // the last of the run
	let settles = false; // this pi says when a run has settled

	function tell(event, ctx, body, done, urgent) {
		const file = ctx?.sessionManager?.getSessionFile?.();
		const id = ctx?.sessionManager?.getSessionId?.();
		if (!file || !id) return undefined;
		return line.send(event, { session_id: id, session_file: file, cwd: ctx.cwd, model: ctx.model?.id, ...body }, ctx.cwd, done, urgent);
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

	const hasWords = (ctx) => (ctx.sessionManager.getBranch?.() ?? []).some((e) => e?.type === "message");

	on("session_start", (event, ctx) => {
		first = event.reason !== "new" && event.reason !== "reload";
		tell("session_start", ctx, { reason: event.reason, has_words: hasWords(ctx) });
	});

	on("before_agent_start", async (event, ctx) => {
		try {
			answer = undefined;
			const custom = event.messageType === "custom";
			const prompt = custom ? textBlocks(event.message?.content) : bound(event.prompt ?? "");
			let come; // ends the wait
			const answered = (text) => {
				if (come) come(text);
				else if (text) late = text;
			};
			const asked = tell("before_agent_start", ctx, { prompt, images: event.images?.length ?? 0, custom }, answered, first);
			let text = late;
			late = "";
			if (asked && first) {
				first = false;
				let timer;
				const word = await new Promise((resolve) => {
					come = resolve;
					timer = setTimeout(resolve, BRIEF_MS, ""); // it also keeps the loop alive meanwhile
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
		const result = { content: textBlocks(event.result?.content) };
		tell("tool_execution_end", ctx, { toolCallId: event.toolCallId, toolName: event.toolName, isError: event.isError === true, result });
	});

	on("turn_end", (event) => {
		settles ||= event.messageEntryId !== undefined; // both came with pi 1
	});

	on("agent_end", (event, ctx) => {
		answer = lastAnswer(event.messages) ?? answer;
		if (!settles) tell("agent_end", ctx, { message: answer });
	});

	on("agent_settled", (event, ctx) => {
		settles = true;
		tell("agent_settled", ctx, { message: answer, aborted: event.aborted === true });
		answer = undefined;
	});

	on("session_before_compact", (event, ctx) => {
		tell("session_before_compact", ctx, { reason: event.reason });
	});

	on("session_compact", (event, ctx) => {
		tell("session_compact", ctx, { reason: event.reason, summary: bound(event.compactionEntry?.summary ?? "") });
	});

	on("session_shutdown", (event, ctx) => {
		tell("session_shutdown", ctx, { reason: event.reason });
		line.end();
	});
}
