// anthropic_client.js - @anthropic-ai/sdk: messages, streams, tools, errors as their classes, aborts.
'use strict';
const Anthropic = require('@anthropic-ai/sdk');
const { base, get, check, question, watched, twice, fails, leaves, run } = require('./client_checks.js');

const client = new Anthropic({ apiKey: 'key-of-anthropic', baseURL: base.replace(/\/v1$/, ''), fetch: watched, maxRetries: 0 });
const ask = (text, more = {}) => ({ model: 'stand-in', max_tokens: 100, messages: [{ role: 'user', content: text }], ...more });

async function messages() {
    const text = question('how are you');
    await twice('messages', text, () => client.messages.create(ask(text, { system: 'be kind' })), (r) =>
        r.content[0].text === 'answer 1 to: ' + text && r.stop_reason === 'end_turn' && r.usage.output_tokens === 7);
    const streamed = question('tell me a story');
    await twice('a stream by its helper', streamed, () => client.messages.stream(ask(streamed)).finalMessage(), (r) =>
        r.content[0].text.trim() === 'answer 1 to: ' + streamed && r.stop_reason === 'end_turn');
    const raw = question('tell me in events');
    await twice('a stream of events', raw, async () => {
        const events = [];
        for await (const event of await client.messages.create(ask(raw, { stream: true }))) events.push(event.type);
        return events;
    }, (r) => r[0] === 'message_start' && r.at(-1) === 'message_stop');
    const cut = question('be cut here');
    await twice('what is cut is not kept', cut, () => client.messages.create(ask(cut)), (r) =>
        r.stop_reason === 'max_tokens', false);
}

async function tools() {
    const text = question('call the tool');
    const weather = { name: 'weather', input_schema: { type: 'object', properties: { city: { type: 'string' } } } };
    await twice('a tool is called, each time anew', text, () => client.messages.create(ask(text, { tools: [weather] })), (r) =>
        r.stop_reason === 'tool_use' && r.content[0].input.city === 'stand-in', false);
}

async function errors() {
    const bad = new Anthropic({ apiKey: 'wrong-key', baseURL: base.replace(/\/v1$/, ''), maxRetries: 0 });
    await fails('401', bad.messages.create(ask(question('who'))), (e) => e instanceof Anthropic.AuthenticationError);
    await fails('429', client.messages.create(ask(question('fail with 429'))), (e) =>
        e instanceof Anthropic.RateLimitError && e.error.error.type === 'rate_limit_error');
    await fails('529', client.messages.create(ask(question('fail with 529'))), (e) =>
        e instanceof Anthropic.InternalServerError && e.status === 529);
    await fails('an error in a stream', client.messages.stream(
        { ...ask(question('breaks')), model: 'stand-in:error-in-stream' }).finalMessage(), (e) =>
        e instanceof Anthropic.APIError && /Overloaded/.test(e.message));
    const text = question('fails once');
    const patient = new Anthropic({ apiKey: 'key-of-anthropic', baseURL: base.replace(/\/v1$/, ''), maxRetries: 2 });
    const answer = await patient.messages.create({ ...ask(text), model: 'stand-in:status=529,fails=1,retry-after-ms=10' });
    check('retries are the client\'s', answer.content[0].text.includes(text), answer);
}

async function abort() {
    const before = (await get('/state')).gone;
    const stream = client.messages.stream({ ...ask(question('a long story')), model: 'stand-in:events=2000,pace=10' });
    let n = 0;
    stream.on('text', () => { if (++n === 5) stream.abort(); });
    await fails('an abort is one', stream.finalMessage(), (e) => e instanceof Anthropic.APIUserAbortError);
    await leaves('an abort reaches the model', before);
}

run(messages, tools, errors, abort);
