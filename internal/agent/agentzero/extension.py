# belay's extension for Agent Zero
#
# It tells the belay daemon what the agents do, and puts into the prompt what belay has to say after a crash. Written by
# `belay install agent-zero`, taken out again by `belay uninstall agent-zero`. The same file lies in the folder of each
# extension point that belay needs; its folder's name says which one it is.
#
# Nothing in here waits: events go through a bounded queue to a thread, which alone talks to the socket. Nothing in here may
# fail the agent: execute catches all that it does. Nothing is told of a context of type BACKGROUND.

import collections
import itertools
import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
import uuid

try:
    from helpers.extension import Extension
except ImportError:  # up to 0.9
    from python.helpers.extension import Extension

HOOK = "belay-hook"
SOCKET = ""
ROOT = ""

MOST_EVENTS = 256  # held while no daemon answers; then the oldest go, and are counted
MOST_TEXT = 256 << 10  # of one text: belay keeps a few KB of its two ends
MOST_CHATS = 1000  # remembered, of those that this process works on
KICK_S = 1.0  # between two tries to have a daemon started
PAUSE_S = 0.02  # the first pause between two looks for a daemon; it doubles
PAUSE_MOST_S = 30.0
SILENT_S = 10.0  # a daemon that answers nothing for so long is given up
MOST_TRIES = 3


def places(env, uid):
    """The places where the daemon may listen: internal/wire/socket.go once more."""
    if SOCKET:
        return [SOCKET]
    if os.path.isabs(env.get("BELAY_STATE_DIR", "")):
        state = env["BELAY_STATE_DIR"]
    elif os.path.isabs(env.get("XDG_STATE_HOME", "")):
        state = env["XDG_STATE_HOME"] + "/belay"
    elif os.path.isabs(env.get("HOME", "")):
        state = env["HOME"] + "/.local/state/belay"
    else:
        return []
    state = "/" + os.path.normpath(state).lstrip("/")
    value = 14695981039346656037
    for b in os.fsencode(state):
        value = ((value ^ b) * 1099511628211) & 0xFFFFFFFFFFFFFFFF
    short = "/tmp/belay-%d/%016x.sock" % (uid, value)
    plain = os.path.join(state, "belay.sock")
    return [plain, short] if len(os.fsencode(plain)) <= 103 else [short]


def trusted(place, uid):
    """Whether a socket may be talked to: ours, in a folder that nobody else can enter."""
    try:
        folder, sock = os.lstat(os.path.dirname(place)), os.lstat(place)
    except OSError:
        return False
    return (
        stat.S_ISDIR(folder.st_mode)
        and folder.st_uid == uid
        and folder.st_mode & 0o077 == 0
        and stat.S_ISSOCK(sock.st_mode)
        and sock.st_uid == uid
    )


class Line:
    """The one connection of this process to the daemon. Events go out in order, each under an id of its own."""

    def __init__(self):
        self.uid = os.getuid()
        self.lock = threading.Condition()
        self.queue = collections.deque()
        self.lost = 0
        self.born = uuid.uuid4().hex[:12]
        self.numbers = itertools.count(1)
        self.kicked = 0.0
        self.chats = collections.OrderedDict()  # id -> what is remembered of a chat
        self.calls = collections.OrderedDict()  # (chat, agent) -> the call that runs
        self.thread = threading.Thread(target=self.run, name="belay", daemon=True)
        self.thread.start()

    def chat(self, ident):
        """What is remembered of a chat; None when it is new."""
        return self.chats.get(ident)

    def open(self, ident):
        with self.lock:
            chat = self.chats[ident] = {"brief": "", "turn": {}}
            while len(self.chats) > MOST_CHATS:
                self.chats.popitem(last=False)
            return chat

    def send(self, event, body, answered=None):
        payload = json.dumps(body, ensure_ascii=True, default=str).encode()
        item = {
            "event": event,
            "id": "a0-%d-%s-%d" % (os.getpid(), self.born, next(self.numbers)),
            "payload": payload,
            "who": {k: body[k] for k in ("session_id", "context_type", "root", "chat_file")},
            "answered": answered,
            "tries": 0,
            "lost": 1,  # events that are lost with it
        }
        with self.lock:
            while len(self.queue) >= MOST_EVENTS:
                self.lost += self.queue.popleft()["lost"]
            self.queue.append(item)
            self.lock.notify()

    def run(self):
        link = None
        pause = PAUSE_S
        while True:
            with self.lock:
                while not self.queue:
                    self.lock.wait()
                item = self.queue[0]
                if self.lost:
                    count, self.lost = self.lost, 0
                    item = self.dropped(item, count)
                    self.queue.appendleft(item)
            try:
                if link is None:
                    link = self.connect()
                code, body = self.ask(link, item)
            except Exception:
                if link is not None:
                    link[0].close()
                    link = None
                    continue  # it may have been restarted: look at once
                self.kick()
                time.sleep(pause)
                pause = min(2 * pause, PAUSE_MOST_S)
                continue
            pause = PAUSE_S
            if code in ("stopping", "internal"):
                item["tries"] += 1
                if item["tries"] < MOST_TRIES:
                    time.sleep(PAUSE_S)
                    continue
            with self.lock:
                if self.queue and self.queue[0] is item:
                    self.queue.popleft()
            if body and item["answered"]:
                item["answered"](body)

    def dropped(self, item, count):
        payload = json.dumps(dict(item["who"], count=count)).encode()
        return dict(item, event="dropped", id=item["id"] + "-dropped", payload=payload, answered=None, tries=0, lost=count)

    def connect(self):
        for place in places(os.environ, self.uid):
            if not trusted(place, self.uid):
                continue
            s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                s.settimeout(SILENT_S)
                s.connect(place)
                return s, s.makefile("rb")
            except OSError:
                s.close()
        raise OSError("no daemon")

    def ask(self, link, item):
        head = {
            "v": 1,
            "op": "hook",
            "agent": "agent-zero",
            "event": item["event"],
            "id": item["id"],
            "pid": os.getpid(),
            "len": len(item["payload"]),
        }
        link[0].sendall(json.dumps(head).encode() + b"\n" + item["payload"])
        line = link[1].readline()
        if not line.endswith(b"\n"):
            raise OSError("the daemon has gone")
        reply = json.loads(line)
        size = reply.get("len") or 0
        body = link[1].read(size)
        if len(body) != size:
            raise OSError("the daemon has gone")
        return reply.get("code"), body.decode("utf-8", "replace")

    def kick(self):
        """Has a daemon started, at most once a second. belay-hook takes its agent's pid from CLAUDE_PID."""
        now = time.monotonic()
        if now - self.kicked < KICK_S:
            return
        self.kicked = now
        try:
            p = subprocess.Popen(
                [HOOK] + (["--socket", SOCKET] if SOCKET else []) + ["agent-zero", "wake"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=dict(os.environ, CLAUDE_PID=str(os.getpid())),
            )
            p.wait(5)  # the daemon is started by a process that goes on without it
        except Exception:
            pass


def line():
    """The line of this process. Each extension point loads this file anew: the first one makes the line for all."""
    key = "_belay_line"
    made = sys.modules.get(key)
    if made is None or getattr(made, "pid", None) != os.getpid():
        made = type(sys)(key)
        made.pid = os.getpid()
        made.line = Line()
        sys.modules[key] = made
    return made.line


def bound(value):
    """A value of any form: a huge text becomes its two ends."""
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(value, default=str)
        if len(text) <= MOST_TEXT:
            return value
    if len(text) <= MOST_TEXT:
        return text
    return text[: MOST_TEXT // 2] + " ... " + text[-MOST_TEXT // 2 :]


def newest(agent, ai):
    """The newest message of the agent's history when it is the model's (or not), as its id."""
    messages = agent.history.current.messages
    if messages and bool(messages[-1].ai) == ai:
        return str(getattr(messages[-1], "id", "") or "")
    return ""


def had_words(agent):
    """Whether something was said before the prompt that begins now."""
    h = agent.history
    return bool(h.bulks or h.topics)


class Belay(Extension):
    async def execute(self, **kwargs):
        try:
            self.tell(os.path.basename(os.path.dirname(os.path.abspath(__file__))), kwargs)
        except Exception:
            pass  # the agent goes on without

    def tell(self, point, kwargs):
        agent = self.agent
        context = getattr(agent, "context", None)
        if context is None or os.environ.get("BELAY_INTERNAL") == "1":
            return
        kind = getattr(context.type, "value", str(context.type))
        if kind == "background":
            return
        ident = str(context.id)
        who = {
            "session_id": ident,
            "context_type": kind,
            "root": ROOT,
            "chat_file": os.path.join(ROOT, "usr", "chats", ident, "chat.json"),
            "agent": agent.number,
            "profile": str(getattr(agent.config, "profile", "") or ""),
        }
        getattr(self, point)(line(), who, agent, kwargs)

    def prompt(self, who, agent):
        message = agent.last_user_message
        return dict(who, turn=str(getattr(message, "id", "") or ""), prompt=bound(message.content))

    def monologue_start(self, daemon, who, agent, kwargs):
        ident = who["session_id"]
        chat = daemon.chat(ident)
        if chat is None:
            chat = daemon.open(ident)
            daemon.send("session_start", dict(who, agent=0, has_words=had_words(agent.context.agent0)))
        body = self.prompt(who, agent)
        chat["turn"][agent.number] = body["turn"]

        def answered(text):
            chat["brief"] = text

        daemon.send("monologue_start", body, answered)

    def message_loop_prompts_after(self, daemon, who, agent, kwargs):
        chat = daemon.chat(who["session_id"])
        if chat is None:
            return
        body = self.prompt(who, agent)
        if body["turn"] and chat["turn"].get(agent.number) not in (None, body["turn"]):
            chat["turn"][agent.number] = body["turn"]
            daemon.send("intervention", body)
        if agent.number == 0 and chat["brief"]:
            # It goes with this turn's calls of the model, and into no history.
            kwargs["loop_data"].extras_persistent["belay"] = chat["brief"]
            chat["brief"] = ""

    def tool_execute_before(self, daemon, who, agent, kwargs):
        if kwargs.get("tool_name") == "response":
            return
        call = newest(agent, True) or uuid.uuid4().hex
        daemon.calls[(who["session_id"], agent.number)] = call
        while len(daemon.calls) > MOST_CHATS:
            daemon.calls.popitem(last=False)
        daemon.send(
            "tool_execute_before",
            dict(who, call=call, tool_name=str(kwargs.get("tool_name") or ""), tool_args=bound(kwargs.get("tool_args"))),
        )

    def tool_execute_after(self, daemon, who, agent, kwargs):
        call = daemon.calls.pop((who["session_id"], agent.number), None)
        if call is None:
            return
        result = getattr(kwargs.get("response"), "message", "")
        daemon.send("tool_execute_after", dict(who, call=call, tool_name=str(kwargs.get("tool_name") or ""), result=bound(result)))

    def monologue_end(self, daemon, who, agent, kwargs):
        loop = kwargs.get("loop_data")
        body = dict(who, last_response=bound(str(getattr(loop, "last_response", "") or "")))
        body["turn"] = str(getattr(agent.last_user_message, "id", "") or "")
        error = sys.exc_info()[1]
        if error is not None:
            # The program wraps what ended the loop.
            inner = error.args[0] if error.args and isinstance(error.args[0], BaseException) else error
            body["cancelled"] = type(inner).__name__ == "CancelledError"
            body["error"] = bound("%s: %s" % (type(inner).__name__, inner))
        daemon.send("monologue_end", body)
