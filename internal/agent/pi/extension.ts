// belay's extension for pi: it tells the belay daemon what pi does, and puts into the context what belay has to say after a
// crash. Written by `belay install pi`, taken out again by `belay uninstall pi`.
//
// pi waits for no handler here but one: before the first turn after a start it waits for belay's word, a second at most.
// Nothing in here may fail the agent: each handler catches what it does. Nothing is told of a session that pi itself does
// not keep (--no-session).
//
// It holds no type annotations, so that every Node can run it as it is.

import { spawn } from "node:child_process";
import * as fs from "node:fs";
import * as net from "node:net";
import * as path from "node:path";

const HOOK = "belay-hook";
const SOCKET = "";

const BRIEF_MS = 1000; // the longest that the first turn waits
const KICK_MS = 1000; // between two tries to have a daemon started
const RETRY_MS = 20; // the first pause between two looks for a daemon; it doubles
const RETRY_MOST_MS = 30000;
const SILENT_MS = 10000; // a daemon that answers nothing for so long is given up
const MOST_EVENTS = 256; // held while no daemon answers; then the oldest go, and are counted
const MOST_BYTES = 16 << 20;
const MOST_TEXT = 256 << 10; // of one text: belay keeps a few KB of its two ends
const MOST_TRIES = 3;
const MOST_LEFT = 8; // events handed over by belay-hook when pi quits while no daemon answers

/** The places where the daemon may listen: internal/wire/socket.go once more. */
export function places(env, uid) {
	if (SOCKET) return [SOCKET];
	let state = "";
	if (path.isAbsolute(env.BELAY_STATE_DIR ?? "")) state = env.BELAY_STATE_DIR;
	else if (path.isAbsolute(env.XDG_STATE_HOME ?? "")) state = env.XDG_STATE_HOME + "/belay";
	else if (path.isAbsolute(env.HOME ?? "")) state = env.HOME + "/.local/state/belay";
	else return [];
	state = path.posix.normalize(state);
	if (state.length > 1) state = state.replace(/\/$/, "");
	let hash = 14695981039346656037n;
	for (const b of Buffer.from(state)) hash = BigInt.asUintN(64, (hash ^ BigInt(b)) * 1099511628211n);
	const short = `/tmp/belay-${uid}/${hash.toString(16).padStart(16, "0")}.sock`;
	const plain = path.posix.join(state, "belay.sock");
	return Buffer.byteLength(plain) <= 103 ? [plain, short] : [short];
}

/** Whether a socket may be talked to: ours, in a folder that nobody else can enter. */
function trusted(place, uid) {
	try {
		const dir = fs.lstatSync(path.dirname(place));
		const sock = fs.lstatSync(place);
		return dir.isDirectory() && dir.uid === uid && (dir.mode & 0o077) === 0 && sock.isSocket() && sock.uid === uid;
	} catch {
		return false;
	}
}

function start(args, input) {
	const child = spawn(HOOK, [...(SOCKET ? ["--socket", SOCKET] : []), "pi", ...args], {
		detached: true,
		stdio: [input ? "pipe" : "ignore", "ignore", "ignore"],
		// belay-hook takes its agent's pid from here; pi may itself run inside of another agent.
		env: { ...process.env, CLAUDE_PID: String(process.pid) },
	});
	child.on("error", () => {}); // not there: the events are held, and the transcript is left
	child.unref();
	if (input) {
		child.stdin.on("error", () => {});
		child.stdin.end(input);
	}
}

/**
 * One connection to the daemon: events go out in order, each under an id of its own, and stay here until they are answered. One
 * closure, because all of it works on the same few variables.
 */
function makeLine(uid) {
	const born = Date.now().toString(36);
	let socket, timer;
	let ready = false;
	let stopped = false;
	let queue = []; // not sent
	let sent = []; // sent, not answered
	let bytes = 0; // of both
	let lost = 0;
	let number = 0;
	let tries = 0;
	let pause = RETRY_MS;
	let looked = 0;
	let kicked = 0;
	let rest = Buffer.alloc(0);

	function make(event, body, cwd, done, urgent) {
		const payload = Buffer.from(JSON.stringify(body));
		const id = `pi-${process.pid}-${born}-${Math.random().toString(36).slice(2)}-${++number}`;
		return { event, id, payload, cwd, done, at: Date.now(), tries: 0, urgent };
	}

	function frame(item) {
		const header = { v: 1, op: "hook", agent: "pi", event: item.event, id: item.id, pid: process.pid, workspace: item.cwd, len: item.payload.length };
		return Buffer.concat([Buffer.from(JSON.stringify(header) + "\n"), item.payload]);
	}

	function forget(item, body) {
		bytes -= item.payload.length;
		item.done?.(body);
	}

	function flush() {
		if (!ready) return;
		if (lost && queue.length) {
			const n = lost;
			lost = 0;
			queue.unshift(make("dropped", { ...queue[0].who, count: n }, queue[0].cwd));
			queue[0].who = queue[1].who;
			bytes += queue[0].payload.length;
		}
		while (queue.length && socket.writableLength < 1 << 20) {
			const item = queue.shift();
			item.at = Date.now();
			sent.push(item);
			socket.write(frame(item));
		}
	}

	function take(data) {
		rest = rest.length ? Buffer.concat([rest, data]) : data;
		for (;;) {
			const end = rest.indexOf(10);
			if (end < 0) return;
			let reply;
			try {
				reply = JSON.parse(rest.toString("utf8", 0, end));
			} catch {
				socket.destroy();
				return;
			}
			const len = reply.len ?? 0;
			if (rest.length < end + 1 + len) return;
			const body = rest.toString("utf8", end + 1, end + 1 + len);
			rest = rest.subarray(end + 1 + len);
			const item = sent[0];
			if (!item) continue;
			if (reply.code === "stopping" || reply.code === "internal") {
				if (++item.tries < MOST_TRIES) {
					socket.destroy(); // all that was not answered is sent again under its id
					return;
				}
				lost++;
			}
			sent.shift();
			forget(item, body);
		}
	}

	function connect() {
		timer = undefined;
		if (socket || stopped) return;
		looked = Date.now();
		const list = places(process.env, uid).filter((p) => trusted(p, uid));
		if (!list.length) {
			later();
			return;
		}
		const s = net.createConnection(list[tries++ % list.length]);
		socket = s;
		s.unref(); // it keeps no pi alive
		s.on("connect", () => {
			if (s !== socket) return;
			ready = true;
			pause = RETRY_MS;
			rest = Buffer.alloc(0);
			flush();
		});
		s.on("data", (data) => s === socket && take(data));
		s.on("drain", flush);
		s.on("error", () => {}); // close follows
		s.on("close", () => {
			if (s !== socket) return;
			socket = undefined;
			ready = false;
			queue = sent.concat(queue);
			sent = [];
			later();
		});
	}

	function later() {
		if (timer || stopped || !queue.length) return;
		if (Date.now() - kicked >= KICK_MS) {
			kicked = Date.now();
			try {
				start(["wake"]);
			} catch {} // no memory for a process: the next try may have it
		}
		timer = setTimeout(connect, queue.some((i) => i.urgent) ? RETRY_MS : pause);
		timer.unref();
		pause = Math.min(2 * pause, RETRY_MOST_MS);
	}

	return {
		/** Takes an event; done is given the text of its answer. An urgent one has somebody waiting. */
		send(event, body, cwd, done, urgent) {
			if (stopped) return undefined;
			const item = make(event, body, cwd, done, urgent);
			item.who = { session_id: body.session_id, session_file: body.session_file, cwd: body.cwd };
			queue.push(item);
			bytes += item.payload.length;
			while (queue.length > 1 && (queue.length + sent.length > MOST_EVENTS || bytes > MOST_BYTES)) {
				lost++;
				forget(queue.shift(), "");
			}
			if (sent.length && Date.now() - sent[0].at > SILENT_MS) socket?.destroy();
			if (ready) flush();
			else if (!socket && (!timer || item.urgent || Date.now() - looked >= KICK_MS)) {
				clearTimeout(timer);
				connect();
			}
			return item;
		},
		/** The last of it. What is written reaches the daemon although pi goes. */
		end() {
			stopped = true;
			clearTimeout(timer);
			if (ready) {
				socket.end();
				return;
			}
			for (const item of queue.slice(-MOST_LEFT)) start([item.event], item.payload);
		},
	};
}

function bound(text) {
	return text.length <= MOST_TEXT ? text : text.slice(0, MOST_TEXT / 2) + " ... " + text.slice(-MOST_TEXT / 2);
}

/** A value of any form: a huge one becomes a text of its two ends. */
function boundValue(value) {
	const text = JSON.stringify(value);
	return text === undefined || text.length <= MOST_TEXT ? value : bound(text);
}

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
	const line = makeLine(uid);
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
				asked.urgent = false;
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
