// belay's plugin for opencode: it tells the belay daemon what opencode does, and puts into the conversation what belay has to
// say after a crash. Written by `belay install opencode`, taken out again by `belay uninstall opencode`.
//
// opencode waits for nothing here but two things: the first prompt of a session waits for belay's word, a second at most, and
// the end of opencode waits until the last events have left. Nothing in here may fail the agent: each hook catches what it does.
//
// The module exports the plugin alone: opencode takes every function that it exports for one.

import { spawn } from "node:child_process";
import * as fs from "node:fs";
import * as net from "node:net";
import * as path from "node:path";

const HOOK = "belay-hook";
const SOCKET = "";

const BRIEF_MS = 1000; // the longest that a first prompt waits
const ASK_MS = 300; // the longest that opencode is asked what a session is
const END_MS = 300;
const KICK_MS = 1000; // between two tries to have a daemon started
const RETRY_MS = 20; // the first pause between two looks for a daemon; it doubles
const RETRY_MOST_MS = 30000;
const SILENT_MS = 10000; // a daemon that answers nothing for so long is given up
const MOST_EVENTS = 256; // held while no daemon answers; then the oldest go, and are counted
const MOST_BYTES = 16 << 20;
const MOST_TEXT = 256 << 10; // of one text: belay keeps a few KB of its two ends
const MOST_TRIES = 3;
const MOST_LEFT = 8; // events handed over by belay-hook when opencode ends while no daemon answers
const MOST_SESSIONS = 1000; // that are kept in mind

/** The places where the daemon may listen: internal/wire/socket.go once more. */
function places(env, uid) {
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
	const child = spawn(HOOK, [...(SOCKET ? ["--socket", SOCKET] : []), "opencode", ...args], {
		detached: true,
		stdio: [input ? "pipe" : "ignore", "ignore", "ignore"],
		// belay-hook takes its agent's pid from here; opencode may itself run inside of another agent.
		env: { ...process.env, CLAUDE_PID: String(process.pid) },
	});
	child.on("error", () => {}); // not there: the events are held, and the transcript is left
	child.unref();
	if (input) {
		child.stdin.on("error", () => {});
		child.stdin.end(input);
	}
}

/** One connection to the daemon: events go out in order, each under an id of its own, and stay here until they are answered. */
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
		const id = `opencode-${process.pid}-${born}-${Math.random().toString(36).slice(2)}-${++number}`;
		return { event, id, payload, cwd, done, at: Date.now(), tries: 0, urgent };
	}

	function frame(item) {
		const header = { v: 1, op: "hook", agent: "opencode", event: item.event, id: item.id, pid: process.pid, workspace: item.cwd, len: item.payload.length };
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
		s.unref(); // it keeps no opencode alive
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
			item.who = { session_id: body.session_id, root_id: body.root_id, directory: body.directory, database: body.database };
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
		/** The last of it: gone out and answered, or handed over; it takes END_MS at most. */
		async end() {
			stopped = true;
			clearTimeout(timer);
			if (!ready) {
				for (const item of queue.slice(-MOST_LEFT)) start([item.event], item.payload);
				return;
			}
			const until = Date.now() + END_MS;
			while (ready && sent.length && Date.now() < until) await new Promise((done) => setTimeout(done, 5));
			socket?.end();
		},
	};
}

function bound(text) {
	if (typeof text !== "string") return "";
	return text.length <= MOST_TEXT ? text : text.slice(0, MOST_TEXT / 2) + " ... " + text.slice(-MOST_TEXT / 2);
}

/** A value of any form: a huge one becomes a text of its two ends. */
function boundValue(value) {
	const text = JSON.stringify(value);
	return text === undefined || text.length <= MOST_TEXT ? value : bound(text);
}

/** The database in which this opencode keeps its sessions. */
function database(env) {
	let data = path.isAbsolute(env.XDG_DATA_HOME ?? "") ? env.XDG_DATA_HOME : path.isAbsolute(env.HOME ?? "") ? env.HOME + "/.local/share" : "";
	if (env.OPENCODE_DB === ":memory:") return "";
	if (path.isAbsolute(env.OPENCODE_DB ?? "")) return env.OPENCODE_DB;
	if (!data) return "";
	data += "/opencode";
	if (env.OPENCODE_DB) return path.join(data, env.OPENCODE_DB);
	try {
		// Each release channel has its own; the one of this process was opened last.
		const age = (name) => Math.max(...["", "-wal", "-shm"].map((end) => fs.statSync(path.join(data, name + end), { throwIfNoEntry: false })?.mtimeMs ?? 0));
		const names = fs.readdirSync(data).filter((name) => /^opencode.*\.db$/.test(name));
		names.sort((a, b) => age(b) - age(a));
		if (names.length) return path.join(data, names[0]);
	} catch {} // not there yet
	return path.join(data, "opencode.db");
}

/** An id for a part that comes after those that are there: opencode sorts parts by their ids. */
function idAfter(parts) {
	const last = parts.map((p) => String(p?.id ?? "")).sort().pop() ?? "";
	const hex = /^prt_([0-9a-f]{12})/.exec(last)?.[1];
	const time = (hex ? BigInt("0x" + hex) + 1n : BigInt(Date.now()) * 4096n) & 0xffffffffffffn;
	const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
	let word = "";
	while (word.length < 14) word += letters[Math.floor(Math.random() * letters.length)];
	return "prt_" + time.toString(16).padStart(12, "0") + word;
}

function makePlugin(input, line) {
	const db = database(process.env);
	const sessions = new Map(); // what is known of each, by its id
	let talked = false; // a session of a person's has begun in this process

	function session(id) {
		let s = sessions.get(id);
		if (!s) {
			s = { id, calls: new Map(), texts: new Map(), known: false, begun: false, busy: false, late: "" };
			if (sessions.size >= MOST_SESSIONS) sessions.delete(sessions.keys().next().value);
			sessions.set(id, s);
		}
		return s;
	}

	function learn(info) {
		const s = session(info.id);
		s.known = true;
		s.parent = info.parentID ?? s.parent;
		s.directory = info.directory ?? s.directory;
		s.model = info.model?.id ?? s.model;
		s.agent = info.agent ?? s.agent;
		return s;
	}

	/** The session that a person talks to, of which this one is a helper, a helper's helper, or itself. */
	function root(s) {
		for (let depth = 0; s.parent && depth < 20; depth++) s = session(s.parent);
		return s.id;
	}

	function tell(event, s, body, done, urgent) {
		begin(s);
		const who = { session_id: s.id, root_id: root(s), directory: s.directory ?? input.directory, database: db, model: s.model };
		return line.send(event, { ...who, message_id: s.message, ...body }, input.directory, done, urgent);
	}

	function begin(s) {
		if (s.begun) return;
		s.begun = true;
		let source = "resume";
		if (s.created) source = s.history ? "fork" : talked ? "clear" : "startup";
		if (!s.parent) talked = true;
		tell("session.start", s, { source, agent: s.agent });
	}

	/** Asks opencode what a session is that did not begin in this process. */
	async function ask(s) {
		let timer;
		const gone = new Promise((done) => (timer = setTimeout(done, ASK_MS)));
		try {
			const found = await Promise.race([input.client?.session?.get?.({ path: { id: s.id } }), gone]);
			if (found?.data?.id === s.id) learn(found.data);
		} catch {} // then it is taken for one of a person's, in this folder
		clearTimeout(timer);
	}

	function part(p) {
		const s = session(p.sessionID);
		if (p.type === "text" && p.messageID === s.answer) {
			if (p.text) s.texts.set(p.id, bound(p.text));
			return;
		}
		if (p.type !== "tool") return;
		const { status, input: args, output, error, metadata, time } = p.state ?? {};
		const was = s.calls.get(p.id);
		const state = { status, input: boundValue(args), output: bound(output), error: bound(error), time, metadata: { exit: metadata?.exit, background: metadata?.background } };
		if (status === "pending" || status === "running") {
			s.calls.set(p.id, status); // it says so again with each piece of its output
			if (status === "running" && was !== "running") tell("tool.start", s, { part: { id: p.id, tool: p.tool, state } });
		} else if (s.calls.delete(p.id)) tell("tool.end", s, { part: { id: p.id, tool: p.tool, state } });
	}

	function message(info) {
		const s = session(info.sessionID);
		if (!s.begun) s.history = true;
		if (info.role !== "assistant" || info.summary === true || info.id === s.answer) return;
		s.answer = info.id; // a turn has several: the last one counts
		s.texts.clear();
		s.model = info.modelID ?? s.model;
	}

	/** The turn is over. After an error opencode says so twice. */
	function idle(s) {
		if (!s.busy) return;
		s.busy = false;
		tell("session.idle", s, { text: [...s.texts.values()].join("\n"), error: s.error });
		s.error = undefined;
	}

	function event({ type, properties: p }) {
		switch (type) {
			case "session.created":
				learn(p.info).created = true;
				return;
			case "session.updated":
				learn(p.info);
				return;
			case "session.deleted":
				sessions.delete(p.info?.id);
				return;
			case "message.updated":
				message(p.info);
				return;
			case "message.part.updated":
				part(p.part);
				return;
			case "session.error":
				if (p.sessionID && p.error) session(p.sessionID).error = { name: p.error.name, data: { message: bound(p.error.data?.message) } };
				return;
			case "session.idle":
				idle(session(p.sessionID));
				return;
			case "session.compacted":
				tell("session.compacted", session(p.sessionID), {});
		}
	}

	/** Tells of a prompt, and puts into it what belay has to say. */
	async function prompt({ sessionID }, { message, parts }) {
		const s = session(sessionID);
		if (!s.known) await ask(s);
		const first = !s.begun && !s.parent;
		begin(s);
		s.busy = true;
		s.error = undefined;
		s.message = message.id;
		s.model = message.model?.modelID ?? s.model;
		const said = parts.map(({ type, text, synthetic, ignored, filename, prompt, command }) => ({ type, text: text && bound(text), synthetic, ignored, filename, prompt: prompt && bound(prompt), command }));
		let come; // ends the wait
		const answered = (text) => {
			if (come) come(text);
			else if (text) s.late = text;
		};
		const asked = tell("chat.message", s, { parts: said }, answered, first);
		let text = s.late;
		s.late = "";
		if (asked && first) {
			let timer;
			const word = await new Promise((resolve) => {
				come = resolve;
				timer = setTimeout(resolve, BRIEF_MS, "");
			});
			clearTimeout(timer);
			come = undefined;
			asked.urgent = false;
			text = word || text;
		}
		if (text) parts.push({ id: idAfter(parts), sessionID, messageID: message.id, type: "text", text, synthetic: true });
	}

	return {
		event: async ({ event: e }) => {
			try {
				event(e);
			} catch {}
		},
		"chat.message": async (about, output) => {
			try {
				await prompt(about, output);
			} catch {} // the turn goes on without
		},
		"experimental.session.compacting": async ({ sessionID }) => {
			try {
				tell("session.compacting", session(sessionID), {});
			} catch {}
		},
		dispose: async () => {
			try {
				// A session that is at work is not told of: what follows is its death, and the daemon sees that.
				for (const s of [...sessions.values()]) if (s.begun && !s.busy && !s.parent) tell("dispose", s, {});
				await line.end();
			} catch {}
		},
	};
}

export const BelayPlugin = async (input) => {
	try {
		const uid = process.getuid?.();
		if (uid === undefined || process.env.BELAY_INTERNAL === "1") return {};
		return makePlugin(input, makeLine(uid));
	} catch {
		return {};
	}
};
