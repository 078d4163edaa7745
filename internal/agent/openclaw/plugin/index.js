// belay's plugin for OpenClaw: it tells the belay daemon what happens, and puts into the context what belay has to say after
// a crash. Written by `belay install openclaw`, taken out again by `belay uninstall openclaw`.
//
// No handler waits but one: the first turn of a session in this process waits for belay's word, a second at most. Nothing in
// here may fail the agent: each handler catches what it does. register() may run several times in one process; the line to
// the daemon and what is known of sessions exist once.

import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { bound, boundValue, makeLine } from "./line.js";

const BRIEF_MS = 1000; // the longest that the first turn waits
const MOST_SESSIONS = 1000; // that are remembered

const shared = Symbol.for("belay.openclaw");

/** A map that forgets its oldest keys. */
class Recent extends Map {
	set(key, value) {
		this.delete(key);
		if (this.size >= MOST_SESSIONS) this.delete(this.keys().next().value);
		return super.set(key, value);
	}
}

/** The words of a message: no thinking, no calls, no bytes of images. */
function words(content) {
	if (typeof content === "string") return bound(content);
	if (!Array.isArray(content)) return undefined;
	return content.filter((b) => b?.type === "text" || b?.type === "image").map((b) => ({ type: b.type, text: bound(b.text) }));
}

const errorText = (e) => (e === undefined || e === null ? undefined : bound(String(e.message ?? e)));

function lastAnswer(messages) {
	if (!Array.isArray(messages)) return undefined;
	for (let i = messages.length - 1; i >= 0; i--) if (messages[i]?.role === "assistant") return messages[i];
	return undefined;
}

function stateDir(api) {
	try {
		const dir = api.runtime?.state?.resolveStateDir?.(process.env);
		if (typeof dir === "string" && path.isAbsolute(dir)) return dir;
	} catch {} // an older OpenClaw has no such function
	const env = process.env.OPENCLAW_STATE_DIR;
	if (env && path.isAbsolute(env)) return env;
	const home = process.env.OPENCLAW_HOME;
	return path.join(home && path.isAbsolute(home) ? home : os.homedir(), ".openclaw");
}

function makeShared(uid) {
	return {
		line: makeLine("openclaw", uid, ["session_id", "session_key", "agent_id", "workspace", "database"]),
		sessions: new Recent(), // session id -> { workspace, model, key, agent, opened, fresh, compacted, before, busy, ended, late }
		byKey: new Recent(), // session key -> session id
		children: new Recent(), // session key of a sub-agent -> { session_id, session_key, child }
		seen: new Recent(), // event -> the registration that tells it: all of them hear of each
		turns: new Recent(), // run id -> { by, text }: the registration that answers for it, and its answer
		workspace: undefined, // of the gateway
	};
}

/** What is known of a session; each event may tell more. */
function know(all, id, ctx) {
	let s = all.sessions.get(id);
	if (!s) {
		s = { opened: false, busy: false, late: "" };
		all.sessions.set(id, s);
	}
	if (ctx?.workspaceDir && !s.workspace) s.workspace = ctx.workspaceDir; // it is part of the session's name: it stays
	if (ctx?.modelId) s.model = ctx.modelId;
	if (ctx?.sessionKey) {
		s.key = ctx.sessionKey;
		all.byKey.set(ctx.sessionKey, id);
	}
	if (ctx?.agentId) s.agent = ctx.agentId;
	return s;
}

function register(api) {
	const uid = process.getuid?.();
	if (uid === undefined || process.env.BELAY_INTERNAL === "1") return;
	const state = stateDir(api);
	const me = Symbol("registration");
	const fresh = !globalThis[shared];
	const all = (globalThis[shared] ??= makeShared(uid));

	const database = (agent) => path.join(state, "agents", agent || "main", "agent", "openclaw-agent.sqlite");

	/** Sends an event of a session. The event of a sub-agent goes to its parent's name. */
	function tell(event, ctx, sessionId, body, done, urgent) {
		const child = all.children.get(ctx?.sessionKey);
		const id = child ? child.session_id : sessionId;
		if (!id || (!child && /:subagent:/.test(ctx?.sessionKey ?? ""))) return undefined;
		const s = child ? (all.sessions.get(id) ?? {}) : know(all, id, ctx);
		const who = {
			session_id: id,
			session_key: s.key,
			agent_id: s.agent,
			workspace: s.workspace ?? all.workspace,
			database: database(s.agent),
			model: child ? ctx?.modelId : s.model,
			run_id: ctx?.runId,
			trigger: ctx?.trigger,
			child_id: child?.child,
		};
		return all.line.send(event, { ...who, ...body }, who.workspace, done, urgent);
	}

	/** Says whether an event is this registration's to tell: the one that hears of it first tells it, each time it comes. */
	function mine(event, ...parts) {
		const key = [event, ...parts].join("\0");
		if (!all.seen.has(key)) all.seen.set(key, me);
		return all.seen.get(key) === me;
	}

	function on(name, handler) {
		api.on(name, (event, ctx) => {
			try {
				return handler(event ?? {}, ctx ?? {});
			} catch {
				return undefined;
			}
		});
	}

	on("gateway_start", (event, ctx) => {
		if (ctx.workspaceDir) all.workspace = ctx.workspaceDir;
	});

	async function open(event, ctx, s) {
		s.opened = true;
		const source = s.compacted ? "compact" : s.fresh ? "startup" : "resume";
		s.compacted = false;
		const before = (source === "compact" && s.before) || ctx.sessionId; // the one that has what is to be told
		let come; // ends the wait
		let timer;
		const word = await new Promise((resolve) => {
			come = resolve;
			const answered = (text) => {
				if (come) come(text);
				else if (text) s.late = text; // too late for this turn: the next one has it
			};
			if (!tell("session_open", ctx, before, { source }, answered, true)) resolve("");
			timer = setTimeout(resolve, BRIEF_MS, "");
		});
		come = undefined;
		clearTimeout(timer);
		if (before !== ctx.sessionId) {
			tell("session_end", ctx, before, { reason: "compaction", nextSessionId: ctx.sessionId });
			know(all, before).ended = true;
		}
		return word;
	}

	on("before_prompt_build", async (event, ctx) => {
		try {
			const id = ctx.sessionId;
			if (!id) return undefined;
			const s = know(all, id, ctx);
			s.fresh ??= !event.messages?.length; // heartbeats before the person's first turn make it no old one
			const persons = (ctx.trigger === undefined || ctx.trigger === "user") && !/:subagent:/.test(ctx.sessionKey ?? "");
			const turn = all.turns.get(ctx.runId);
			if (turn) {
				if (turn.by !== me) return undefined;
				// Built again: after a failure, which changes nothing, or after a compaction in the middle of the turn.
				if (persons && s.compacted) turn.text = await open(event, ctx, s);
				return turn.text ? { prependContext: turn.text } : undefined;
			}
			const now = { by: me, text: "" };
			if (ctx.runId) all.turns.set(ctx.runId, now);
			s.ended = false;
			s.busy = true;
			let text = "";
			if (persons) {
				text = s.late;
				s.late = "";
				if (!s.opened || s.compacted) text = (await open(event, ctx, s)) || text;
			}
			const late = (word) => {
				if (word) s.late = word;
			};
			tell("before_prompt_build", ctx, id, { prompt: bound(event.prompt) }, persons ? late : undefined);
			now.text = text;
			if (text) return { prependContext: text };
		} catch {} // the turn goes on without
		return undefined;
	});

	on("before_tool_call", (event, ctx) => {
		if (!mine("before_tool_call", event.runId ?? ctx.runId, event.toolCallId)) return undefined;
		tell("before_tool_call", ctx, ctx.sessionId, { toolCallId: event.toolCallId, toolName: event.toolName, params: boundValue(event.params) });
		return undefined;
	});

	on("after_tool_call", (event, ctx) => {
		if (!mine("after_tool_call", event.runId ?? ctx.runId, event.toolCallId)) return;
		const body = { toolCallId: event.toolCallId, toolName: event.toolName, error: errorText(event.error) };
		body.content = words(typeof event.result === "string" ? event.result : event.result?.content);
		body.status = event.result?.details?.status;
		body.isError = event.result?.isError === true;
		tell("after_tool_call", ctx, ctx.sessionId, body);
	});

	on("agent_end", (event, ctx) => {
		const run = event.runId ?? ctx.runId;
		if (!mine("agent_end", run ?? Math.random())) return;
		if (ctx.sessionId) know(all, ctx.sessionId, ctx).busy = false;
		tell("agent_end", { ...ctx, runId: run }, ctx.sessionId, {
			success: event.success !== false,
			error: errorText(event.error),
			content: words(lastAnswer(event.messages)?.content),
		});
	});

	/** A compaction in the middle of a run, by the model's limit, names the session by its key alone. */
	const idOf = (ctx) => ctx.sessionId ?? all.byKey.get(ctx.sessionKey);

	on("before_compaction", (event, ctx) => {
		tell("before_compaction", ctx, idOf(ctx), { reason: event.reason });
	});
	on("after_compaction", (event, ctx) => {
		const id = idOf(ctx);
		const before = event.previousSessionId ?? id; // with truncateAfterCompaction it goes on under another id
		tell("after_compaction", ctx, before, { reason: event.reason });
		if (!id || (before === id && !all.sessions.get(id)?.opened)) return;
		Object.assign(know(all, id, ctx), { compacted: true, before }); // the next turn asks for what the summary may have lost
	});

	on("before_reset", (event, ctx) => {
		if (!ctx.sessionId) return;
		know(all, ctx.sessionId, ctx).late = "";
		tell("before_reset", ctx, ctx.sessionId, { reason: event.reason });
	});

	on("session_end", (event, ctx) => {
		const id = event.sessionId ?? ctx.sessionId;
		const c = { ...ctx, sessionKey: ctx.sessionKey ?? event.sessionKey };
		tell("session_end", c, id, { reason: event.reason, nextSessionId: event.nextSessionId });
		const s = all.sessions.get(id);
		const goesOn = event.nextSessionId === id || (event.reason === "compaction" && !event.nextSessionId);
		if (s && !goesOn) s.ended = true;
	});

	on("subagent_spawned", (event, ctx) => {
		const key = event.childSessionKey ?? ctx.childSessionKey;
		const parent = all.byKey.get(ctx.requesterSessionKey);
		if (!key || !parent) return;
		all.children.set(key, { session_id: parent, child: key.slice(key.lastIndexOf(":") + 1) });
		tell("subagent_spawned", { sessionKey: key }, parent, { label: event.label ?? event.agentId });
	});

	on("subagent_ended", (event, ctx) => {
		const key = event.targetSessionKey ?? ctx.childSessionKey;
		const child = all.children.get(key);
		if (child) tell("subagent_ended", { sessionKey: key }, child.session_id, { reason: event.outcome });
	});

	// `openclaw agent --local` ends without a word when its turn is over. What is written here still goes out.
	if (fresh) {
		process.once("exit", () => {
			try {
				for (const [id, s] of all.sessions) {
					if (s.opened && !s.busy && !s.ended) tell("session_end", { sessionKey: s.key }, id, { reason: "exit" });
				}
				all.line.end();
			} catch {}
		});
	}
}

export default {
	id: "belay",
	name: "belay",
	description: "Tells the belay daemon what happens",
	register,
};
