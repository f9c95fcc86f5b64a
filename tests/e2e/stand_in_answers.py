"""stand_in_answers.py - what the stand-in model says, in the shapes of its interfaces: a body, or the events of a stream.

Each shape has two functions: body(a) and events(a), of an Answer; events yields bytes without the line ends, which the
server puts behind them (`steer` may ask for other ones). Ids are random, as a real model's are.
"""
import functools
import hashlib
import json
import math
import re
import struct
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field

DIM = 64
FREQUENT = set("a an and are be can could do does for from how i in is it me my of on or please tell that the this to "
               "we what where which who why will with would you your".split())


@functools.lru_cache(10000)
def direction(word):
    blocks = (hashlib.sha512(b"%d %s" % (i, word.encode())).digest() for i in range(DIM // 16))
    return [x / 2**31 for block in blocks for x in struct.unpack("<16i", block)]


def embed(text, dim=DIM):
    """The sum of a direction per word, by hash: texts that share words are near; frequent words count little."""
    out = [1e-3] * DIM
    for word, times in Counter(re.findall(r"\w+", text.lower())).items():  # a text may be one word 190,000 times
        weight = times * (0.15 if word in FREQUENT else 1)
        out = [x + weight * y for x, y in zip(out, direction(word))]
    whole, rest = divmod(dim, DIM)
    norm = math.sqrt(whole * sum(x * x for x in out) + sum(x * x for x in out[:rest]))
    out = [x / norm for x in out]
    return out * whole + out[:rest]


def vector_json(vector):
    """What embed() gives, as JSON: the numbers that repeat are written once."""
    whole, rest = divmod(len(vector), DIM)
    once, last = json.dumps(vector[:DIM])[1:-1], json.dumps(vector[:rest])[1:-1]
    return "[%s]" % ", ".join([once] * whole + [last] * (rest > 0))


@dataclass
class Answer:
    request: dict
    steer: dict  # words that ask for something odd: see stand_in_model.py
    text: str    # what is said
    prompt: str  # what was asked
    tool: tuple = None  # (name, arguments): a call instead of a text
    made: int = field(default_factory=lambda: int(time.time()))

    @property
    def model(self):
        return self.request.get("model", "stand-in")

    @property
    def choices(self):
        return int(self.steer.get("choices", self.request.get("n") or 1))

    @property
    def finish(self):
        if "no-finish" in self.steer:
            return None
        for word in ("length", "content_filter"):
            if word in self.steer:
                return word
        return "tool_calls" if self.tool else "stop"

    @property
    def pieces(self):
        """The text as it comes: a word at a time, or as many pieces as `events` says."""
        if "empty" in self.steer:
            return []
        n = int(self.steer.get("events", 0))
        if n:
            return ["x" * int(self.steer.get("big", 0)) + "%d " % i for i in range(n)]
        return [word + " " for word in self.text.split(" ")]

    @property
    def whole(self):
        return "" if "empty" in self.steer else "".join(self.pieces) if "events" in self.steer else self.text

    @property
    def tokens(self):
        return len(self.prompt.split()), 7


def tag(begin):
    return begin + uuid.uuid4().hex[:24]


def data(value):
    return b"data: " + json.dumps(value, ensure_ascii=False).encode()


def named(name, value):
    return b"event: " + name.encode() + b"\n" + data({"type": name, **value})


ERROR = {"message": "the stand-in was asked to fail", "type": "server_error", "param": None, "code": "asked_for"}


def of_schema(schema):
    """A value that a JSON schema allows, as far as tests need it."""
    kind = schema.get("type", "object")
    if "enum" in schema:
        return schema["enum"][0]
    if kind == "object":
        return {name: of_schema(value) for name, value in schema.get("properties", {}).items()}
    return {"string": "stand-in", "number": 1.5, "integer": 7, "boolean": True, "array": [], "null": None}[kind]


# ---- /v1/chat/completions ----

class Chat:
    object, prefix = "chat.completion", "chatcmpl-"

    @staticmethod
    def usage(a):
        asked, said = a.tokens
        return {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said,
                "prompt_tokens_details": {"cached_tokens": 0}}

    @staticmethod
    def message(a):
        if a.tool:
            call = {"id": tag("call_"), "type": "function",
                    "function": {"name": a.tool[0], "arguments": json.dumps(a.tool[1])}}
            return {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None}
        message = {"role": "assistant", "content": a.whole, "refusal": None}
        if "refusal" in a.steer:
            message.update(content=None, refusal="no")
        if "reasoning" in a.steer:
            message["reasoning_content"] = "thinking of it"
        return message

    @classmethod
    def body(cls, a):
        choices = [{"index": i, "message": cls.message(a), "logprobs": None, "finish_reason": a.finish}
                   for i in range(a.choices)]
        return {"id": tag(cls.prefix), "object": cls.object, "created": a.made, "model": a.model, "choices": choices,
                "usage": cls.usage(a), "system_fingerprint": "fp_stand_in"}

    @classmethod
    def deltas(cls, a):
        yield {"role": "assistant", "content": None if a.tool else "", "refusal": None}
        if a.tool:
            call = {"index": 0, "id": tag("call_"), "type": "function", "function": {"name": a.tool[0], "arguments": ""}}
            yield {"tool_calls": [call]}
            text = json.dumps(a.tool[1])
            for part in (text[:len(text) // 2], text[len(text) // 2:]):
                yield {"tool_calls": [{"index": 0, "function": {"arguments": part}}]}
            return
        if "reasoning" in a.steer:
            yield {"reasoning_content": "thinking "}
            yield {"reasoning_content": "of it"}
        for piece in a.pieces:
            yield {"content": piece}

    @classmethod
    def events(cls, a):
        head = {"id": tag(cls.prefix), "object": cls.object + ".chunk", "created": a.made, "model": a.model,
                "system_fingerprint": "fp_stand_in"}
        wants = (a.request.get("stream_options") or {}).get("include_usage")
        counts = a.steer.get("usage") != "never" and (wants or a.steer.get("usage") == "always")
        more = {"usage": None} if counts else {}

        def chunk(i, delta, finish=None):
            return data({**head, "choices": [{"index": i, "delta": delta, "logprobs": None, "finish_reason": finish}],
                         **more})
        if "error-first" in a.steer:
            yield data({"error": ERROR})
            return
        for delta in cls.deltas(a):
            for i in range(a.choices):
                yield chunk(i, delta)
        if "error-in-stream" in a.steer:
            yield data({"error": ERROR})
            if a.steer["error-in-stream"] != "done":
                return
        for i in range(a.choices if a.finish else 0):
            yield chunk(i, {}, a.finish)
        if counts:
            yield data({**head, "choices": [], "usage": cls.usage(a)})
        if "no-done" not in a.steer:
            yield b"data: [DONE]"


# ---- /v1/completions ----

class Text:
    @staticmethod
    def body(a):
        choices = [{"index": i, "text": a.whole, "logprobs": None, "finish_reason": a.finish} for i in range(a.choices)]
        return {"id": tag("cmpl-"), "object": "text_completion", "created": a.made, "model": a.model,
                "choices": choices, "usage": Chat.usage(a)}

    @staticmethod
    def events(a):
        head = {"id": tag("cmpl-"), "object": "text_completion", "created": a.made, "model": a.model}
        for piece in a.pieces:
            yield data({**head, "choices": [{"index": 0, "text": piece, "logprobs": None, "finish_reason": None}]})
        if a.finish:
            yield data({**head, "choices": [{"index": 0, "text": "", "logprobs": None, "finish_reason": a.finish}]})
        if (a.request.get("stream_options") or {}).get("include_usage"):
            yield data({**head, "choices": [], "usage": Chat.usage(a)})
        if "no-done" not in a.steer:
            yield b"data: [DONE]"


# ---- /v1/responses ----

class Responses:
    @staticmethod
    def response(a, id, status, output):
        asked, said = a.tokens
        done = status != "in_progress"
        usage = {"input_tokens": asked, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": said,
                 "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": asked + said}
        return {"id": id, "object": "response", "created_at": a.made, "status": status, "background": False,
                "error": None, "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
                "instructions": None, "max_output_tokens": None, "metadata": {}, "model": a.model, "output": output,
                "parallel_tool_calls": True, "previous_response_id": None, "reasoning": {"effort": None, "summary": None},
                "store": a.request.get("store", True), "temperature": 1.0, "text": {"format": {"type": "text"}},
                "tool_choice": "auto", "tools": a.request.get("tools", []), "top_p": 1.0, "truncation": "disabled",
                "usage": usage if done else None, "user": None}

    @staticmethod
    def item(a, id, whole=True):
        status = "completed" if whole else "in_progress"
        if a.tool:
            return {"type": "function_call", "id": id, "call_id": tag("call_"), "name": a.tool[0],
                    "arguments": json.dumps(a.tool[1]) if whole else "", "status": status}
        content = [{"type": "output_text", "text": a.whole, "annotations": [], "logprobs": []}] if whole else []
        return {"type": "message", "id": id, "status": status, "role": "assistant", "content": content}

    @classmethod
    def status(cls, a):
        return "incomplete" if a.finish in ("length", "content_filter") else "completed"

    @classmethod
    def body(cls, a):
        return cls.response(a, tag("resp_"), cls.status(a), [cls.item(a, tag("msg_"))])

    @classmethod
    def events(cls, a):
        id, item, n = tag("resp_"), tag("msg_"), iter(range(10**9))

        def event(kind, /, **value):
            return named(kind, {"sequence_number": next(n), **value})
        at = {"item_id": item, "output_index": 0}
        yield event("response.created", response=cls.response(a, id, "in_progress", []))
        yield event("response.in_progress", response=cls.response(a, id, "in_progress", []))
        if "error-first" in a.steer or "error-in-stream" in a.steer:
            yield event("error", code="server_error", message=ERROR["message"], param=None)
            return
        yield event("response.output_item.added", output_index=0, item=cls.item(a, item, False))
        whole = cls.item(a, item)
        if a.tool:
            yield event("response.function_call_arguments.delta", delta=whole["arguments"], **at)
            yield event("response.function_call_arguments.done", arguments=whole["arguments"], name=a.tool[0], **at)
        else:
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            yield event("response.content_part.added", content_index=0, part=part, **at)
            for piece in a.pieces:
                yield event("response.output_text.delta", content_index=0, delta=piece, logprobs=[], **at)
            yield event("response.output_text.done", content_index=0, text=a.whole, logprobs=[], **at)
            yield event("response.content_part.done", content_index=0, part=whole["content"][0], **at)
        yield event("response.output_item.done", output_index=0, item=whole)
        if "no-done" not in a.steer:
            status = cls.status(a)
            yield event("response." + status, response=cls.response(a, id, status, [whole]))


# ---- /v1/messages ----

class Messages:
    REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}

    @classmethod
    def blocks(cls, a):
        if a.tool:
            return [{"type": "tool_use", "id": tag("toolu_"), "name": a.tool[0], "input": a.tool[1]}]
        return [{"type": "text", "text": a.whole, "citations": None}]

    @classmethod
    def message(cls, a, content, reason):
        asked, said = a.tokens
        return {"id": tag("msg_"), "type": "message", "role": "assistant", "model": a.model, "content": content,
                "stop_reason": reason, "stop_sequence": None,
                "usage": {"input_tokens": asked, "output_tokens": said if reason else 1,
                          "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}}

    @classmethod
    def body(cls, a):
        return cls.message(a, cls.blocks(a), cls.REASONS.get(a.finish))

    @classmethod
    def events(cls, a):
        if "error-first" in a.steer:
            yield named("error", {"error": {"type": "overloaded_error", "message": "Overloaded"}})
            return
        yield named("message_start", {"message": cls.message(a, [], None)})
        block = cls.blocks(a)[0]
        begin = {**block, "input": {}} if a.tool else {**block, "text": ""}
        yield named("content_block_start", {"index": 0, "content_block": begin})
        yield named("ping", {})
        if a.tool:
            delta = {"type": "input_json_delta", "partial_json": json.dumps(a.tool[1])}
            yield named("content_block_delta", {"index": 0, "delta": delta})
        for piece in [] if a.tool else a.pieces:
            yield named("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": piece}})
        if "error-in-stream" in a.steer:
            yield named("error", {"error": {"type": "overloaded_error", "message": "Overloaded"}})
            return
        yield named("content_block_stop", {"index": 0})
        if a.finish:
            delta = {"stop_reason": cls.REASONS[a.finish], "stop_sequence": None}
            yield named("message_delta", {"delta": delta, "usage": {"output_tokens": a.tokens[1]}})
        if "no-done" not in a.steer:
            yield named("message_stop", {})


SHAPES = {"/chat/completions": Chat, "/completions": Text, "/responses": Responses, "/messages": Messages}
