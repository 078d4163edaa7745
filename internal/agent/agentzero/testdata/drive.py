# Stands in for Agent Zero: loads the extension's files as it does, and plays its message loop over stub classes.
# Usage: drive.py ROOT SCENE
import asyncio
import importlib.util
import inspect
import json
import os
import signal
import sys
import time
import uuid

ROOT, SCENE = sys.argv[1], sys.argv[2]
sys.path.insert(0, ROOT)
sys.dont_write_bytecode = os.environ.get("WRITE_BYTECODE") != "1"
from helpers.extension import Extension  # the stub in ROOT

slowest = 0.0


class Kind:
    def __init__(self, value):
        self.value = value


class Message:
    def __init__(self, ai, content):
        self.id, self.ai, self.content = str(uuid.uuid4()), ai, content


class Topic:
    def __init__(self, messages=None):
        self.messages = messages or []


class History:
    def __init__(self):
        self.bulks, self.topics, self.current = [], [], Topic()

    def add(self, ai, content):
        self.current.messages.append(Message(ai, content))
        return self.current.messages[-1]


class Context:
    def __init__(self, ident, kind):
        self.id, self.type = ident, Kind(kind)


class Config:
    profile = "coder"


class LoopData:
    def __init__(self):
        self.last_response, self.extras_persistent = "", {}


class Response:
    def __init__(self, message):
        self.message = message


def classes(point):
    folder = os.path.join(ROOT, "usr", "extensions", "python", point)
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".py"):
            continue
        spec = importlib.util.spec_from_file_location(name[:-3], os.path.join(folder, name))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for _, cls in reversed(inspect.getmembers(module, inspect.isclass)):
            if cls is not Extension and issubclass(cls, Extension):
                yield cls
                break


class Agent:
    points = {}

    def __init__(self, number, context):
        self.number, self.context, self.config, self.history = number, context, Config(), History()
        self.last_user_message = None
        if number == 0:
            context.agent0 = self

    async def call(self, point, **kwargs):
        global slowest
        if point not in Agent.points:
            Agent.points[point] = list(classes(point))
        began = time.monotonic()
        for cls in Agent.points[point]:
            await cls(agent=self).execute(**kwargs)
        slowest = max(slowest, time.monotonic() - began)

    def user(self, text, key="user_message"):
        h = self.history
        if h.current.messages:
            h.topics.append(h.current)
            h.current = Topic()
        self.last_user_message = h.add(False, {key: text})

    def say(self, loop, tool, args):
        loop.last_response = json.dumps({"thoughts": ["hm"], "tool_name": tool, "tool_args": args})
        self.history.add(True, loop.last_response)

    async def tool(self, loop, name, args, result):
        self.say(loop, name, args)
        await self.call("tool_execute_before", tool_name=name, tool_args=args)
        if result is None:
            self.save()
            await settled()
            os.kill(os.getpid(), signal.SIGKILL)
        await self.call("tool_execute_after", tool_name=name, response=Response(result))
        if name != "response":
            self.history.add(False, {"tool_name": name, "tool_result": result})

    def save(self):
        dump = lambda t: {"_cls": "Topic", "summary": "", "messages": [{"_cls": "Message", "id": m.id, "ai": m.ai, "content": m.content, "summary": ""} for m in t.messages]}
        h = self.history
        history = {"_cls": "History", "counter": 0, "bulks": [], "topics": [dump(t) for t in h.topics], "current": dump(h.current)}
        chat = {"id": self.context.id, "name": "x", "created_at": "2026-04-03T10:00:00+00:00", "type": self.context.type.value}
        chat["agents"] = [{"number": 0, "data": {}, "history": json.dumps(history)}]
        chat["log"] = {"guid": "g-" + self.context.id, "logs": []}
        path = os.path.join(ROOT, "usr", "chats", self.context.id, "chat.json")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(json.dumps(chat))

    def load(self):
        path = os.path.join(ROOT, "usr", "chats", self.context.id, "chat.json")
        with open(path) as f:
            history = json.loads(json.load(f)["agents"][0]["history"])
        for t in history["topics"] + [history["current"]]:
            messages = []
            for m in t["messages"]:
                messages.append(Message(m["ai"], m["content"]))
                messages[-1].id = m["id"]
            self.history.topics.append(Topic(messages))


async def settled(seconds=10):
    """Waits until the extension's thread has sent all that it was given."""
    made = sys.modules.get("_belay_line")
    end = time.monotonic() + seconds
    while made and made.line.queue and time.monotonic() < end:
        await asyncio.sleep(0.005)


async def turn(agent, text, tools, answer="done"):
    loop = LoopData()
    agent.user(text)
    await agent.call("monologue_start", loop_data=loop)
    await settled()
    for name, args, result in tools:
        await agent.call("message_loop_prompts_after", loop_data=loop)
        await agent.tool(loop, name, args, result)
    await agent.call("message_loop_prompts_after", loop_data=loop)
    await agent.tool(loop, "response", {"text": answer}, answer)
    agent.save()
    await agent.call("monologue_end", loop_data=loop)
    await settled()
    return loop.extras_persistent.get("belay", "")


async def main():
    a = Agent(0, Context("chatAAAA", "background" if SCENE == "background" else "user"))
    out = {}
    if SCENE == "crash":
        out["brief"] = await turn(a, "please list the files here", [("code_execution_tool", {"code": "ls"}, "a.txt")], "one file: a.txt")
        await turn(a, "now remove them all please", [("code_execution_tool", {"code": "rm -rf x"}, None)])
    elif SCENE == "resume":
        a.load()
        out["brief"] = await turn(a, "are you there again", [])
        out["again"] = await turn(a, "and once more", [])
    elif SCENE == "background":
        await turn(a, "a background job", [("search", {"q": "x"}, "y")])
    elif SCENE == "fails":
        loop = LoopData()
        a.user("this will fail")
        await a.call("monologue_start", loop_data=loop)
        try:
            try:
                raise RuntimeError(asyncio.CancelledError())
            finally:
                await a.call("monologue_end", loop_data=loop)
        except RuntimeError:
            pass
        await settled()
    elif SCENE == "alone":  # no daemon answers
        for n in range(400):
            loop = LoopData()
            a.user("prompt %d" % n)
            await a.call("monologue_start", loop_data=loop)
        end = time.monotonic() + 10
        while "WAIT_FOR" in os.environ and not os.path.exists(os.environ["WAIT_FOR"]) and time.monotonic() < end:
            await asyncio.sleep(0.005)
        held = sys.modules["_belay_line"].line
        with held.lock:
            out["held"] = sum(i["event"] != "dropped" for i in held.queue)
            out["lost"] = held.lost + sum(i["lost"] for i in held.queue if i["event"] == "dropped")
    elif SCENE == "broken":  # nothing is as the extension knows it
        a.history = a.last_user_message = a.config = None
        for point in ("monologue_start", "message_loop_prompts_after", "tool_execute_before", "tool_execute_after", "monologue_end"):
            await a.call(point)
        a.context = None
        await a.call("monologue_start")
    out["slowest_ms"] = slowest * 1000
    print(json.dumps(out))


asyncio.run(main())
