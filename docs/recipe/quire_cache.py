"""quire_cache.py - a semantic cache in front of an OpenAI-compatible model, over redis-py.

    cache = QuireCache(redis.Redis(port=6379), "answers", embed=embed, encoder="my-encoder@1")
    answer = cache.ask(request, call_model, category="chat", scope={"tenant": "acme"})
    print(answer.status, answer.value)

`request` is the body of /v1/chat/completions as a dictionary, `call_model(request)` returns the model's body as bytes,
`embed(text)` a list of floats. For streams: ask_stream, whose call_model yields the events one by one. What goes into
which key, what is kept, and why, is in recipe-llm.md. An object may be used by many threads at once.
"""
import array
import hashlib
import json
import logging
import threading
from dataclasses import dataclass, field

import redis

# What does not decide the answer. All else does, known or not: an unknown field makes a miss, never a wrong answer.
IGNORED = {"stream_options", "user", "metadata", "store", "safety_identifier", "prompt_cache_key",
           "prompt_cache_retention", "service_tier", "request_id", "session_id", "priority", "kv_transfer_params",
           "cache_prompt", "id_slot", "timings_per_token"}
ABSENT = {"stream": False, "n": 1}  # values that say the same as none
SERVED = ("hit", "exact", "stale")
log = logging.getLogger("quire_cache")


class Uncacheable(Exception):
    """Raised by a call_model for what only it knows: this is an answer for the user, `value` or `chunks`, but none to
    keep. With refused the question gets `negative` for a while, so that nobody waits for an answer that is not kept."""

    def __init__(self, value=None, chunks=None, refused=False):
        super().__init__("an answer that is not kept")
        self.value, self.chunks, self.refused = value, chunks, refused


@dataclass
class Answer:
    status: str  # hit, exact, stale, miss, negative, bypass, audit, or down: no cache was there
    value: bytes = None
    chunks: list = None
    reply: dict = field(default_factory=dict)


@dataclass
class Keys:
    named: list  # words that name the question: all that SC.NEG takes
    all: list    # with its vector


@dataclass
class Question:
    hash: str
    compat: str
    text: str  # None: the last message is no plain text of a user; only the same request has this answer


def digest(value):
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def question_of(request):
    """The keys of a request: of all that decides the answer, of all but the last text, and that text."""
    canonical = {name: value for name, value in request.items()
                 if value is not None and name not in IGNORED and ABSENT.get(name) != value}
    if "max_completion_tokens" in canonical:
        canonical["max_tokens"] = canonical.pop("max_completion_tokens")
    messages = [{name: value for name, value in message.items() if name != "id"}
                for message in canonical.get("messages") or [{}]]
    last = messages[-1]
    text = text_of(last.get("content")) if last.get("role") == "user" else None
    before = messages[:-1] + [{name: value for name, value in last.items() if text is None or name != "content"}]
    return Question(digest({**canonical, "messages": messages}), digest({**canonical, "messages": before}), text)


def text_of(content):
    """A text, or a list of nothing but texts, as one; None: there is something else in it."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(isinstance(p, dict) and p.get("type") == "text" for p in content):
        return None
    return "".join(part.get("text", "") for part in content)


class Judge:
    """Whether an answer is to be kept: all of it is there, every choice ends with `stop`, something was said, and
    there is no error in it, which may come in a stream of status 200."""

    def __init__(self):
        self.ends, self.broken, self.done, self.says, self.usage = {}, False, False, False, None

    def _take(self, value):
        if not isinstance(value, dict) or value.get("error") or not isinstance(value.get("choices"), list):
            self.broken = True
            return
        self.usage = value.get("usage") or self.usage
        for choice in value["choices"]:
            index, said = choice.get("index", 0), choice.get("message") or choice.get("delta") or {}
            self.ends[index] = choice.get("finish_reason") or self.ends.get(index)
            self.says = self.says or bool(said.get("content"))
            self.broken = self.broken or bool(said.get("tool_calls") or said.get("refusal"))

    def body(self, value):
        try:
            self._take(json.loads(value))
        except ValueError:
            self.broken = True
        self.done = True
        return self

    def event(self, event):
        """Looks at an event of a stream. False: it only counts tokens, which not everybody has asked for."""
        for line in event.splitlines():
            text = line[5:].strip() if line.startswith(b"data:") else b""
            if text == b"[DONE]":
                self.done = True
            elif text:
                try:
                    value = json.loads(text)
                except ValueError:
                    value = None
                self._take(value)
                if isinstance(value, dict) and value.get("choices") == [] and value.get("usage"):
                    return False
        return True

    @property
    def keeps(self):
        return self.done and self.says and not self.broken and set(self.ends.values()) == {"stop"}

    @property
    def refused(self):
        return "content_filter" in self.ends.values()


def words(value):
    return value.decode() if isinstance(value, bytes) else value


RAW = ("value", "chunks", "entry_value")


def fields(reply):
    """A map as RESP3 has it, from RESP2's flat array. Values stay bytes; names, and what is text, become str."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2])
    return {words(name): value if words(name) in RAW else words(value) for name, value in pairs}


class QuireCache:
    def __init__(self, client, name, embed, encoder=None, wait_ms=30000, same=None):
        """same(cached, fresh): whether two answers say the same, asked where the cache wants a label; None: labels are
        left to whoever calls SC.AUDIT POP."""
        self.client, self.name, self.embed, self.encoder = client, name, embed, encoder
        self.wait_ms, self.same = wait_ms, same

    # ---- the two calls ----

    def keys(self, request, category, scope=None):
        question = question_of(request)
        named = ["CAT", category, "HASH", question.hash, "COMPAT", question.compat]
        if scope:
            named += ["SCOPE", *(word for pair in scope.items() for word in pair)]
        if question.text is None:
            return Keys(named, named)
        named += ["TEXT", question.text]
        vector = ["VEC", array.array("f", self.embed(question.text)).tobytes()]
        return Keys(named, named + vector + (["ENCODER", self.encoder] if self.encoder else []))

    def get(self, keys):
        return fields(self.client.execute_command("SC.GET", self.name, *keys.all, "WAIT", self.wait_ms))

    def put(self, keys, lease, model, value=None, chunks=None, tags=(), usage=None):
        stored = ["CHUNKS", len(chunks), *chunks] if chunks else ["VALUE", value]
        stored += [word for tag in tags for word in ("TAG", tag)]
        if usage:
            stored += ["TOKENS", usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)]
        return fields(self.client.execute_command("SC.PUT", self.name, *keys.all, "LEASE", lease, "MODEL", model,
                                                  *stored))

    def _tell(self, *command):
        """After the model has answered: what goes wrong here must not take the answer from the user. An audit that a
        judge in the background has labelled meanwhile is refused, too."""
        try:
            return self.client.execute_command(*command)
        except redis.RedisError as e:
            log.warning("%s: %s", command[0], e)
            return None

    def _fail(self, lease):
        if lease:
            self._tell("SC.FAIL", self.name, lease)

    def _negative(self, keys, lease):
        if keys:
            self._tell("SC.NEG", self.name, *keys.named, *(["LEASE", lease] if lease else []))

    def _label(self, reply, fresh):
        if "audit" not in reply or not self.same:
            return
        if reply["status"] == "audit":
            cached = reply["value"] if "value" in reply else b"".join(reply["chunks"])
        else:  # a miss that is sampled: what its nearest entry would have answered
            pair = self._tell("SC.AUDIT", "GET", self.name, reply["audit"])
            cached = fields(pair)["entry_value"] if pair else None
        if cached is None:
            return  # labelled meanwhile, or the entry has gone
        self._tell("SC.AUDIT", "PUT", self.name, reply["audit"], "GOOD" if self.same(cached, fresh) else "BAD")

    def _keep(self, keys, reply, request, tags, **stored):
        """With a lease the answer is ours to put; without one another client is about to."""
        lease = reply.get("lease")
        if not lease:
            return
        try:
            self.put(keys, lease, request.get("model", ""), tags=tags, **stored)
        except redis.RedisError as e:
            log.warning("SC.PUT: %s", e)
            self._fail(lease)

    # ---- a request ----

    def _look_up(self, request, category, scope):
        """The cache is a help, not a part that all depends on: where it or the encoder is gone, the model answers. What
        the cache refuses is raised: a mistake in the settings is not to look like a low hit rate."""
        try:
            keys = self.keys(request, category, scope)
        except Exception as e:  # whatever embed raises
            log.warning("no vector: %s", e)
            return None, {"status": "down"}
        try:
            return keys, self.get(keys)
        except redis.AuthenticationError:
            raise
        except (redis.ConnectionError, redis.TimeoutError) as e:
            log.warning("no cache: %s", e)
            return keys, {"status": "down"}

    def _model(self, keys, reply, request, call_model, tags):
        """Asks the model and keeps its answer, if that is ours to do."""
        try:
            value = call_model(request)
        except Uncacheable as e:
            if e.refused:
                self._negative(keys, reply.get("lease"))
            else:
                self._fail(reply.get("lease"))
            return e.value
        except BaseException:
            self._fail(reply.get("lease"))  # the next one that waits asks the model instead
            raise
        self._judged(keys, reply, request, tags, Judge().body(value), value=value)
        return value

    def _judged(self, keys, reply, request, tags, judge, **stored):
        """The answer is there and its user has it: it is kept, or those who wait are told that it is not."""
        if judge.keeps:
            self._label(reply, stored["value"] if "value" in stored else b"".join(stored["chunks"]))
            self._keep(keys, reply, request, tags, usage=judge.usage, **stored)
        elif judge.refused:
            self._negative(keys, reply.get("lease"))
        else:
            self._fail(reply.get("lease"))

    def ask(self, request, call_model, category, scope=None, tags=()):
        keys, reply = self._look_up(request, category, scope)
        if reply["status"] not in SERVED:
            return Answer(reply["status"], self._model(keys, reply, request, call_model, tags), reply=reply)
        if reply.get("lease"):  # stale, and it is up to us to renew it: the user need not wait for that
            self._in_background(self._model, keys, reply, request, call_model, tags)
        return Answer(reply["status"], reply["value"], reply=reply)

    @staticmethod
    def _in_background(function, *arguments):
        def run():
            try:
                function(*arguments)
            except Exception as e:  # the server knows already: whoever asks next gets the lease
                log.warning("renewing: %s", e)
        threading.Thread(target=run, daemon=True).start()

    # ---- streams ----

    def _stream(self, keys, reply, request, call_model, tags):
        chunks, ended, judge = [], False, Judge()
        asked = request.get("stream_options") or {}
        try:
            # tokens are always asked for: an answer that is kept has them for whoever wants them
            for chunk in call_model({**request, "stream_options": {**asked, "include_usage": True}}):
                chunks.append(chunk)
                if judge.event(chunk) or asked.get("include_usage"):
                    yield chunk
            ended = True
        except Uncacheable as e:
            yield from e.chunks or []
        finally:
            # also where the user has gone in the middle: half an answer is none
            if not ended:
                self._fail(reply.get("lease"))
        if ended:
            self._judged(keys, reply, request, tags, judge, chunks=chunks)

    def ask_stream(self, request, call_model, category, scope=None, tags=()):
        """The answer's chunks are an iterator: as they come from the model, or as they once came."""
        keys, reply = self._look_up(request, category, scope)
        if reply["status"] not in SERVED:
            return Answer(reply["status"], chunks=self._stream(keys, reply, request, call_model, tags), reply=reply)
        if reply.get("lease"):
            def renew():
                for _ in self._stream(keys, reply, request, call_model, tags):
                    pass
            self._in_background(renew)
        wants = (request.get("stream_options") or {}).get("include_usage")
        chunks = [chunk for chunk in reply.get("chunks") or [reply["value"]] if Judge().event(chunk) or wants]
        return Answer(reply["status"], chunks=iter(chunks), reply=reply)
