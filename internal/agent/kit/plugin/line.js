// The line from an agent's plugin to the belay daemon: events go out in order over one connection, each under an id of its own,
// and stay here until they are answered. No caller ever waits.

import { spawn } from "node:child_process";
import * as fs from "node:fs";
import * as net from "node:net";
import * as path from "node:path";

const HOOK = "belay-hook";
const SOCKET = "";

const KICK_MS = 1000; // between two tries to have a daemon started
const RETRY_MS = 20; // the first pause between two looks for a daemon; it doubles
const RETRY_MOST_MS = 30000;
const SILENT_MS = 10000; // a daemon that answers nothing for so long is given up
const MOST_EVENTS = 256; // held while no daemon answers; then the oldest go, and are counted
const MOST_BYTES = 16 << 20;
const MOST_TEXT = 256 << 10; // of one text: belay keeps a few KB of its two ends
const MOST_TRIES = 3;
const MOST_LEFT = 8; // events handed over by belay-hook when the process ends while no daemon answers

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

function start(agent, args, input) {
	const child = spawn(HOOK, [...(SOCKET ? ["--socket", SOCKET] : []), agent, ...args], {
		detached: true,
		stdio: [input ? "pipe" : "ignore", "ignore", "ignore"],
		// belay-hook takes its agent's pid from here; this one may itself run inside of another agent.
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
 * Opens the line of an agent, for a user. What a body says under the names in who goes with the count of dropped events as
 * well: whose they were. One closure, because all of it works on the same few variables.
 */
export function makeLine(agent, uid, who) {
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
		const id = `${agent}-${process.pid}-${born}-${Math.random().toString(36).slice(2)}-${++number}`;
		const whose = Object.fromEntries(who.map((k) => [k, body[k]]));
		return { event, id, payload, cwd, done, at: Date.now(), tries: 0, urgent, whose };
	}

	function frame(item) {
		const header = { v: 1, op: "hook", agent, event: item.event, id: item.id, pid: process.pid, workspace: item.cwd, len: item.payload.length };
		return Buffer.concat([Buffer.from(JSON.stringify(header) + "\n"), item.payload]);
	}

	function forget(item, body) {
		bytes -= item.payload.length;
		item.done?.(body);
	}

	function flush() {
		if (!ready) return;
		if (lost && queue.length) {
			const item = make("dropped", { ...queue[0].whose, count: lost }, queue[0].cwd);
			lost = 0;
			queue.unshift(item);
			bytes += item.payload.length;
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
		s.unref(); // it keeps no process alive
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
				start(agent, ["wake"]);
			} catch {} // no memory for a process: the next try may have it
		}
		timer = setTimeout(connect, queue.some((i) => i.urgent && i.done) ? RETRY_MS : pause);
		timer.unref();
		pause = Math.min(2 * pause, RETRY_MOST_MS);
	}

	return {
		/** Takes an event; done is given the text of its answer. An urgent one has somebody waiting. */
		send(event, body, cwd, done, urgent) {
			if (stopped) return undefined;
			const item = make(event, body, cwd, done, urgent);
			if (urgent) setTimeout(() => (item.urgent = false), KICK_MS).unref();
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
		/**
		 * The last of it. What is written reaches the daemon although the process ends, if the process lets go of it by itself:
		 * one that is cut off has to wait for the answers, ms at most.
		 */
		async end(ms = 0) {
			stopped = true;
			clearTimeout(timer);
			try {
				if (!ready) {
					for (const item of queue.slice(-MOST_LEFT)) start(agent, [item.event], item.payload);
					return;
				}
				const until = Date.now() + ms;
				while (ready && sent.length && Date.now() < until) await new Promise((done) => setTimeout(done, 5));
				socket?.end();
			} catch {} // nobody waits for it, so that nobody would catch it
		},
	};
}

/** A text that is not too large to send. */
export function bound(text) {
	if (typeof text !== "string") return undefined;
	return text.length <= MOST_TEXT ? text : text.slice(0, MOST_TEXT / 2) + " ... " + text.slice(-MOST_TEXT / 2);
}

/** A value of any form: a huge one becomes a text of its two ends. */
export function boundValue(value) {
	const text = JSON.stringify(value);
	return text === undefined || text.length <= MOST_TEXT ? value : bound(text);
}
