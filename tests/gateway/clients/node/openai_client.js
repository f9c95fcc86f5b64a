// openai_client.js - the npm package openai: chat, streams, tools, structured output, embeddings, responses, completions, models,
// errors as their classes, retries, aborts, odd streams.
'use strict';
const OpenAI = require('openai');
const { zodResponseFormat } = require('openai/helpers/zod');
const { z } = require('zod');
const { base, get, check, question, last, watched, twice, fails, leaves, run } = require('./client_checks.js');

const client = new OpenAI({ apiKey: 'key-of-openai', baseURL: base, fetch: watched, maxRetries: 0 });
const messages = (text) => [{ role: 'system', content: 'be kind' }, { role: 'user', content: text }];
const ask = (text, more = {}) => ({ model: 'stand-in', messages: messages(text), ...more });
const TOOL = { type: 'function', function: { name: 'weather', description: 'of a city', parameters: {
    type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } } };

async function collect(stream) {
    const chunks = [];
    for await (const chunk of stream) chunks.push(chunk);
    return chunks;
}

const said = (chunks) => chunks.map((c) => c.choices[0]?.delta?.content ?? '').join('');

async function chat() {
    const text = question('how are you');
    await twice('chat', text, () => client.chat.completions.create(ask(text)), (r) =>
        r.choices[0].message.content === 'answer 1 to: ' + text && r.choices[0].finish_reason === 'stop' &&
        r.usage.completion_tokens === 7 && typeof r._request_id === 'string');
    const { response, request_id: id } = await client.chat.completions.create(ask(text + '?')).withResponse();
    check('withResponse', response.status === 200 && id, id);
    const parts = question('text as parts');
    const body = ask('', { messages: [{ role: 'user', content: [{ type: 'text', text: parts }] }] });
    await twice('text parts', parts, () => client.chat.completions.create(body), (r) =>
        r.choices[0].message.content.includes(parts));
    const two = question('two choices');
    await twice('n 2 is not kept', two, () => client.chat.completions.create(ask(two, { n: 2 })), (r) =>
        r.choices.length === 2, false);
    const cut = question('be cut here');
    await twice('what is cut is not kept', cut, () => client.chat.completions.create(ask(cut)), (r) =>
        r.choices[0].finish_reason === 'length', false);
}

async function streams() {
    const text = question('tell me a story');
    await twice('a stream', text, async () => collect(await client.chat.completions.create(ask(text, { stream: true }))),
        (r) => said(r).trim() === 'answer 1 to: ' + text && r.at(-1).choices[0].finish_reason === 'stop' &&
            new Set(r.map((c) => c.id)).size === 1 && r.every((c) => c.choices.length === 1));
    const counted = question('tell me with tokens');
    const options = { stream: true, stream_options: { include_usage: true } };
    await twice('with usage', counted, async () => collect(await client.chat.completions.create(ask(counted, options))),
        (r) => r.at(-1).usage.completion_tokens === 7 && r.at(-1).choices.length === 0);
    const helped = question('tell me by the helper');
    await twice('the stream helper', helped, async () => client.chat.completions.stream(ask(helped)).finalChatCompletion(),
        (r) => r.choices[0].message.content.trim() === 'answer 1 to: ' + helped);
    for (const odd of ['crlf', 'comments', 'split', 'reasoning', 'events=200,pace=0']) {
        const named = question(odd + ' stream');
        await twice(odd, named, async () => collect(await client.chat.completions.create(
            { ...ask(named, { stream: true }), model: 'stand-in:' + odd })), (r) =>
            odd.startsWith('events') ? said(r).endsWith('199 ') : said(r).includes(odd === 'split' ? '日本語 🦙🦙' : named));
    }
    for (const odd of ['length', 'no-finish', 'no-done', 'empty', 'choices=2,length']) {
        const named = question(odd + ' stream');
        await twice(odd + ' is not kept', named, async () => collect(await client.chat.completions.create(
            { ...ask(named, { stream: true }), model: 'stand-in:' + odd })), (r) => r.length > 0, false);
    }
}

async function tools() {
    const text = question('call the tool');
    const first = await twice('a tool is called, each time anew', text,
        () => client.chat.completions.create(ask(text, { tools: [TOOL] })), (r) =>
            r.choices[0].finish_reason === 'tool_calls' && r.choices[0].message.tool_calls[0].function.name === 'weather' &&
            JSON.parse(r.choices[0].message.tool_calls[0].function.arguments).city === 'stand-in', false);
    const result = question('it rains');
    const call = first.choices[0].message;
    const turn = [...messages(text), call, { role: 'tool', tool_call_id: call.tool_calls[0].id, content: result }];
    await twice('and its result answered', result,
        () => client.chat.completions.create(ask('', { messages: turn, tools: [TOOL] })), (r) =>
            r.choices[0].message.content.includes(result));
    const streamed = question('call the tool in a stream');
    await twice('in a stream', streamed,
        async () => client.chat.completions.stream(ask(streamed, { tools: [TOOL] })).finalChatCompletion(), (r) =>
            JSON.parse(r.choices[0].message.tool_calls[0].function.arguments).city === 'stand-in', false);
}

async function structured() {
    const text = question('who is it');
    const format = zodResponseFormat(z.object({ name: z.string(), age: z.number().int() }), 'person');
    await twice('structured output', text, () => client.chat.completions.parse(ask(text, { response_format: format })),
        (r) => r.choices[0].message.parsed.name === 'stand-in' && r.choices[0].message.parsed.age === 7);
}

async function embeddings() {
    const text = question('an embedding');
    const input = [text, question('another')];
    await twice('embeddings, by base64', 'embed: ' + text,
        () => client.embeddings.create({ model: 'stand-in', input }), (r) =>
            r.data.length === 2 && r.data[0].embedding.length === 64 && r.data[1].index === 1 &&
            Math.abs(r.data[0].embedding.reduce((sum, x) => sum + x * x, 0) - 1) < 1e-3);
    const floats = question('as floats');
    await twice('embeddings, as floats', 'embed: ' + floats,
        () => client.embeddings.create({ model: 'stand-in', input: floats, encoding_format: 'float' }), (r) =>
            r.data[0].embedding.length === 64);
}

async function responses() {
    const text = question('respond');
    const body = { model: 'stand-in', input: text, store: false };
    await twice('responses', text, () => client.responses.create(body), (r) =>
        r.output_text === 'answer 1 to: ' + text && r.status === 'completed');
    const streamed = question('respond in a stream');
    await twice('responses, streamed', streamed,
        async () => collect(await client.responses.create({ ...body, input: streamed, stream: true })), (r) =>
            r.at(-1).type === 'response.completed' && r.at(-1).response.output[0].content[0].text.includes(streamed) &&
            r.some((e) => e.type === 'response.output_text.delta'));
    const stored = question('respond and remember');
    await twice('a response that the model keeps is not kept', stored,
        () => client.responses.create({ ...body, input: stored, store: true }), (r) => r.output_text.includes(stored), false);
    const cut = question('respond and be cut');
    await twice('an incomplete response is not kept', cut, () => client.responses.create({ ...body, input: cut }), (r) =>
        r.status === 'incomplete', false);
}

async function others() {
    const text = question('complete');
    await twice('completions', text, () => client.completions.create({ model: 'stand-in', prompt: text }), (r) =>
        r.choices[0].text.includes(text));
    const models = await client.models.list();
    check('models', models.data[0].id === 'stand-in', models.data);
}

async function errors() {
    const bad = new OpenAI({ apiKey: 'wrong-key', baseURL: base, maxRetries: 0 });
    await fails('401', bad.chat.completions.create(ask(question('who am i'))), (e) =>
        e instanceof OpenAI.AuthenticationError && /Incorrect API key/.test(e.message));
    const kinds = { 400: OpenAI.BadRequestError, 403: OpenAI.PermissionDeniedError, 404: OpenAI.NotFoundError,
                    409: OpenAI.ConflictError, 422: OpenAI.UnprocessableEntityError, 429: OpenAI.RateLimitError,
                    500: OpenAI.InternalServerError, 503: OpenAI.InternalServerError };
    for (const [status, kind] of Object.entries(kinds)) {
        const text = question('fail with ' + status);
        for (const time of [1, 2]) {
            await fails(`${status}, time ${time}`, client.chat.completions.create(ask(text, { stream: time === 2 })), (e) =>
                e instanceof kind && e.status === Number(status) && e.code === 'asked_for' && /as asked/.test(e.message));
        }
    }
    const text = question('an error in a stream');
    for (const odd of ['error-in-stream', 'error-first']) {
        await fails(odd, client.chat.completions.create({ ...ask(text, { stream: true }), model: 'stand-in:' + odd })
            .then(collect), (e) => e instanceof OpenAI.APIError && /asked to fail/.test(e.message));
    }
    await fails('a connection that breaks', client.chat.completions.create(
        { ...ask(question('breaks'), { stream: true }), model: 'stand-in:close=3' }).then(collect), (e) => e instanceof Error);
    await fails('the client\'s own timeout', client.chat.completions.create(
        { ...ask(question('late')), model: 'stand-in:late=20000' }, { timeout: 200 }), (e) =>
        e instanceof OpenAI.APIConnectionTimeoutError);
}

async function retries() {
    const patient = new OpenAI({ apiKey: 'key-of-openai', baseURL: base, maxRetries: 2, fetch: watched });
    const text = question('fails twice');
    const began = last.urls.length;
    const answer = await patient.chat.completions.create(
        { ...ask(text), model: 'stand-in:status=503,fails=2,retry-after-ms=20' });
    check('retries are the client\'s', answer.choices[0].message.content.includes(text) &&
        last.urls.length - began === 3, last.urls.length - began);
    const seen = (await get('/requests')).filter((r) => Buffer.from(r.body, 'base64').includes('fails twice'));
    const counts = seen.map((r) => Object.fromEntries(r.headers.map(([n, v]) => [n.toLowerCase(), v]))['x-stainless-retry-count']);
    check('and the model sees each', ['0', '1', '2'].every((n) => counts.includes(n)), counts);
}

async function abort() {
    const before = (await get('/state')).gone;
    const stream = await client.chat.completions.create(
        { ...ask(question('a very long story'), { stream: true }), model: 'stand-in:events=2000,pace=10' });
    let n = 0;
    for await (const chunk of stream) if (chunk && ++n === 5) break; // which aborts
    await leaves('an abort reaches the model', before);
    const controller = new AbortController();
    const promise = client.chat.completions.create({ ...ask(question('never')), model: 'stand-in:late=20000' },
                                                   { signal: controller.signal });
    setTimeout(() => controller.abort(), 100);
    await fails('before the first byte', promise, (e) => e instanceof OpenAI.APIUserAbortError);
}

run(chat, streams, tools, structured, embeddings, responses, others, errors, retries, abort);
