// belay's plugin for opencode: it tells the belay daemon what opencode does, and puts into the conversation what belay has to
// say after a crash. Written by `belay install opencode`, taken out again by `belay uninstall opencode`.
//
// opencode waits for nothing here but two things: the first prompt of a session waits for belay's word, a second at most, and
// the end of opencode waits until the last events have left. Nothing in here may fail the agent: each hook catches what it does.
//
// The module exports the plugin alone: opencode takes every function that it exports for one.

import * as fs from "node:fs";
import * as path from "node:path";
import { bound, boundValue, makeLine } from "./line.js";

const BRIEF_MS = 1000; // the longest that a first prompt waits
const ASK_MS = 300; // the longest that opencode is asked what a session is
const END_MS = 300;
const MOST_SESSIONS = 1000; // that are kept in mind

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
				await line.end(END_MS);
			} catch {}
		},
	};
}

export const BelayPlugin = async (input) => {
	try {
		const uid = process.getuid?.();
		if (uid === undefined || process.env.BELAY_INTERNAL === "1") return {};
		return makePlugin(input, makeLine("opencode", uid, ["session_id", "root_id", "directory", "database"]));
	} catch {
		return {};
	}
};
