// oracle.js ORACLE SECONDS [SEED] - compares gateway/text with Node: what is JSON, canonical forms and keys, and events.
//
// ORACLE is the program gateway_oracle. Texts are grown from seeds by changes of bytes and tokens. Bodies are made at
// random, and each is spelled in two ways (order, escapes, blanks, numbers) that must have one key, namely that of the
// form that is written plainly below. The judge of what is JSON is JSON.parse; a reader written plainly below adds what it forgives (names that are twice there,
// half surrogate pairs, depth) and keeps what it loses (numbers in full). Prints one line, or the first disagreements.
'use strict'
const { spawn } = require('child_process')
const { createHash } = require('crypto')

const [oracle, secondsText, seedText] = process.argv.slice(2)
if (!secondsText) { console.error('usage: oracle.js ORACLE SECONDS [SEED]'); process.exit(2) }
const seconds = Number(secondsText)
let state = Number(BigInt(seedText || 1) * 0x9e3779b97f4a7c15n & 0xffffffffn) || 1
function random (n) { // xorshift32
  state ^= state << 13; state >>>= 0
  state ^= state >>> 17
  state ^= state << 5; state >>>= 0
  return state % n
}
const one = list => list[random(list.length)]

// ---- the reference: JSON ----

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
const halfPair = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/
class Refused extends Error {}
class Num { constructor (text) { this.text = text } }

function canonicalNumber (text) {
  const [, sign, whole, fraction = '', exponent = '0'] = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text)
  if (exponent.replace(/^[+-]?0*/, '').length > 15) throw new Refused('exponent')
  let digits = BigInt(whole + fraction), power = BigInt(exponent) - BigInt(fraction.length)
  if (digits === 0n) return '0'
  let shown = digits.toString()
  const zeros = /0*$/.exec(shown)[0].length
  shown = shown.slice(0, shown.length - zeros)
  power += BigInt(zeros)
  if (power > 999999999999999n || power < -999999999999999n) throw new Refused('exponent')
  return sign + shown + (power === 0n ? '' : 'e' + power)
}

// Objects become Maps, numbers keep their text. Only for what JSON.parse accepts.
function readPlainly (text) {
  let at = 0
  const space = () => { while (' \n\r\t'.includes(text[at]) && at < text.length) at++ }
  const string = () => {
    const begin = at++
    while (text[at] !== '"') at += text[at] === '\\' ? 2 : 1
    const value = JSON.parse(text.slice(begin, ++at))
    if (halfPair.test(value)) throw new Refused('half pair')
    return value
  }
  const value = depth => {
    space()
    const c = text[at]
    if (c === '{' || c === '[') {
      if (depth === 64) throw new Refused('depth')
      at++
      const object = new Map(), list = []
      for (space(); text[at] !== '}' && text[at] !== ']'; space()) {
        if (text[at] === ',') at++
        space()
        if (c === '[') { list.push(value(depth + 1)); continue }
        const name = string()
        if (object.has(name)) throw new Refused('twice')
        space(); at++ // the colon
        object.set(name, value(depth + 1))
      }
      at++
      return c === '[' ? list : object
    }
    if (c === '"') return string()
    const word = /^(true|false|null|[-0-9.eE+]+)/.exec(text.slice(at, at + 4000))[0]
    at += word.length
    if (word === 'true' || word === 'false') return word === 'true'
    if (word === 'null') return null
    canonicalNumber(word)
    return new Num(word)
  }
  return value(0)
}

// undefined: refused
function read (bytes) {
  let text
  try { text = decoder.decode(bytes); JSON.parse(text) } catch { return undefined }
  try { return { value: readPlainly(text) } } catch (e) { if (e instanceof Refused) return undefined; throw e }
}

const spelled = text => JSON.stringify(text)
const bySpelling = (a, b) => Buffer.compare(Buffer.from(spelled(a).slice(1, -1)), Buffer.from(spelled(b).slice(1, -1)))
function write (value) {
  if (value === null || typeof value === 'boolean') return String(value)
  if (typeof value === 'string') return spelled(value)
  if (value instanceof Num) return canonicalNumber(value.text)
  if (Array.isArray(value)) return '[' + value.map(write).join(',') + ']'
  return '{' + [...value.keys()].sort(bySpelling).map(name => spelled(name) + ':' + write(value.get(name))).join(',') + '}'
}

// ---- the reference: keys of requests ----

const ignored = new Set(['stream_options', 'user', 'metadata', 'store', 'safety_identifier', 'prompt_cache_key',
  'prompt_cache_retention', 'service_tier', 'request_id', 'session_id', 'priority', 'cache_salt', 'kv_transfer_params',
  'cache_prompt', 'id_slot', 'timings_per_token', 'cache', 'model'])

class Mark { constructor (text) { this.text = text } }
function writeMarked (value) {
  if (value instanceof Mark) return value.text
  if (Array.isArray(value)) return '[' + value.map(writeMarked).join(',') + ']'
  if (value instanceof Map) return '{' + [...value.keys()].sort(bySpelling).map(name => spelled(name) + ':' + writeMarked(value.get(name))).join(',') + '}'
  return write(value)
}

const isText = part => part instanceof Map && part.size === 2 && part.get('type') === 'text' && typeof part.get('text') === 'string'
const sortedNames = map => [...map.keys()].sort(bySpelling)

// What the route `letter` asks: the value that is HASH's alone, and where ids of tool calls are.
function questionOf (letter, body) {
  if (letter === 'E') return body.get('input')
  if (letter === 'P') return typeof body.get('prompt') === 'string' && body.get('prompt') !== '' ? body.get('prompt') : undefined
  if (letter !== 'C') return undefined
  const messages = body.get('messages'), last = messages[messages.length - 1], content = last.get('content')
  const asks = last.get('role') === 'user' && (typeof content === 'string' ? content.length > 0
    : Array.isArray(content) && content.every(isText) && content.map(part => part.get('text')).join('\n').length > 0)
  return asks ? content : undefined
}

function form (letter, body) {
  const rest = new Map(), ids = new Map(), question = questionOf(letter, body)
  const limits = ['max_tokens', 'max_completion_tokens'].filter(name => letter === 'C' && (body.get(name) ?? null) !== null)
  const id = value => {
    if (typeof value !== 'string') return value
    if (!ids.has(value)) ids.set(value, ids.size + 1)
    return new Mark('@' + ids.get(value))
  }
  // ids are numbered in the order of names
  const members = (map, change) => new Map(sortedNames(map).map(name => [name, change(name, map.get(name))]).filter(([, value]) => value !== undefined))
  const inside = (list, change) => Array.isArray(list) ? list.map(x => x instanceof Map ? members(x, (name, value) => change(x, name, value)) : x) : list
  const block = (of, name, value) => letter === 'M' && (name === 'tool_use_id' || (name === 'id' && of.get('type') === 'tool_use')) ? id(value) : value
  const message = m => members(m, (name, value) => {
    if (value === null || (name === 'id' && letter !== 'R')) return undefined
    if (name === 'content' && question !== undefined && value === question && m === body.get('messages').at(-1)) return new Mark('?')
    if (name === 'content') return inside(value, block)
    if (name === 'tool_call_id' || (name === 'call_id' && letter === 'R')) return id(value)
    if (name === 'tool_calls' && letter === 'C') return inside(value, (_, n, v) => n === 'id' ? id(v) : v)
    return value
  })
  const listed = letter === 'R' ? 'input' : 'C M'.includes(letter) ? 'messages' : undefined
  for (const [name, value] of body) {
    if (value === null || ignored.has(name)) continue
    if (limits.length === 1 && name === limits[0]) continue
    if (name === 'n' && value instanceof Num && canonicalNumber(value.text) === '1') continue
    if (name === 'stream' && value === false) continue
    if (name === listed && Array.isArray(value)) rest.set(name, value.map(message))
    else rest.set(name, question !== undefined && name === (letter === 'E' ? 'input' : letter === 'P' ? 'prompt' : '') ? new Mark('?') : value)
  }
  const limit = limits.length === 1 ? ',"limit":' + write(body.get(limits[0])) : ''
  const model = typeof body.get('model') === 'string' ? quoted(body.get('model')) : 'null'
  const text = '{"v":1,"path":"/v1/path","upstream":"up","model":' + model + limit + ',"body":' + writeMarked(rest) + '}'
  const compat = createHash('sha256').update('quire-gateway 1 compat\n' + text).digest()
  const hash = createHash('sha256').update('quire-gateway 1 hash\n').update(compat).update(question === undefined ? '' : write(question)).digest()
  return { text, keys: compat.toString('hex') + hash.toString('hex') }
}
// the envelope escapes by \u alone
const quoted = text => '"' + text.replace(/[\u0000-\u001f"\\]/g, c => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0')) + '"'

// ---- the reference: events ----

function events (bytes) {
  let text = bytes.toString('latin1').replace(/^\xef\xbb\xbf/, '')
  const out = []
  let type = '', data = null
  while (true) {
    const end = /\r\n|\r|\n/.exec(text)
    if (!end) break
    const line = text.slice(0, end.index)
    text = text.slice(end.index + end[0].length)
    if (line === '') {
      if (data !== null) out.push(type + '\x1f' + data.slice(0, -1) + '\x1e')
      type = ''; data = null
      continue
    }
    const [, field, value = ''] = /^([^:]*)(?::(?: )?([^]*))?$/.exec(line)
    if (field === 'data') data = (data ?? '') + value + '\n'
    if (field === 'event') type = value
  }
  return out.join('')
}

// ---- the program under test ----

const child = spawn(oracle, [], { stdio: ['pipe', 'pipe', 'inherit'] })
let received = Buffer.alloc(0), wake = null
child.stdout.on('data', data => { received = received.length ? Buffer.concat([received, data]) : data; if (wake) { wake(); wake = null } })
child.on('exit', code => { if (!ended) { console.log(`FAIL - the oracle ended (${code}); the last questions:`); for (const q of questions.slice(0, 3)) show(q); process.exit(1) } })
let ended = false

async function answersTo (asked) {
  const frames = []
  for (const { letter, bytes } of asked) {
    const head = Buffer.alloc(5)
    head.write(letter); head.writeUInt32LE(bytes.length, 1)
    frames.push(head, bytes)
  }
  child.stdin.write(Buffer.concat([...frames, Buffer.from('F\0\0\0\0')]))
  const out = []
  let parts = received, at = 0
  while (out.length < asked.length) {
    while (parts.length - at >= 4 && parts.length - at - 4 >= parts.readUInt32LE(at)) {
      const n = parts.readUInt32LE(at)
      out.push(parts.subarray(at + 4, at + 4 + n))
      at += 4 + n
      if (out.length === asked.length) break
    }
    received = parts.subarray(at)
    if (out.length < asked.length) {
      await new Promise(resolve => { wake = resolve })
      parts = received; at = 0
    }
  }
  return out
}

// ---- texts ----

const seeds = ['{"model":"m","messages":[{"role":"user","content":"hello \\u00e4 \\ud83d\\ude00 \u00e9"}],"temperature":0.70,"n":1}',
  '[1,1.0,10e-1,-0,0.0e5,1e400,123456789012345678901234567890,0.1000,-1.5E+2]', '{"a":{"b":[true,false,null,{}]},"c":[],"\\u0061b":1}',
  '"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\\u007f"', '{"a":1,"\\u0061":2}', ' { "x" : [ 1 , 2 ] } ', '""', '[]', '{}', 'null', '-1']
const tokens = ['{', '}', '[', ']', ',', ':', '"', '\\', '\\u', '\\ud83d', '\\ude00', '\\u0061', 'true', 'false', 'null', '0', '-', '1e', '.5', 'e999999999999999', '.1e-999999999999999',
  '"a":', '"a"', ' ', '\n', '\t', '\ufeff', '\u2028', '\x00', '\x7f', 'é', '😀', '00', '1.0', '1e+0', '{"a":1,', '[[[[[[[[', ']]]]]]]]', '\\/', '\\n']
const raw = [[0xff], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0xe2, 0x82], [0x80], [0xf0, 0x8f, 0xbf, 0xbf], [0xc3]]

function mutate (bytes) {
  for (let times = 1 + random(3); times > 0; times--) {
    const at = random(bytes.length + 1), end = Math.min(bytes.length, at + random(8))
    const cut = kind => Buffer.concat([bytes.subarray(0, at), kind, bytes.subarray(end)])
    switch (random(7)) {
      case 0: bytes = cut(Buffer.alloc(0)); break
      case 1: case 2: case 3: { const token = Buffer.from(one(tokens)); bytes = Buffer.concat([bytes.subarray(0, at), token, bytes.subarray(random(3) ? at : end)]); break }
      case 4: bytes = cut(Buffer.from([random(256)])); break
      case 5: bytes = cut(bytes.subarray(random(bytes.length + 1), random(bytes.length + 1))); break
      case 6: bytes = random(4) ? cut(Buffer.from([48 + random(10)])) : cut(Buffer.from(one(raw))); break
    }
  }
  return bytes.length > 4000 ? bytes.subarray(0, 4000) : bytes
}
const deep = () => { const n = 60 + random(10); return Buffer.from(one(['[', '{"a":']).repeat(n) + '1' + ']'.repeat(n)) }

// ---- bodies ----

const word = () => one(['hello', 'a\nb', '"q"', '\u00e9', '😀', 'x'.repeat(1 + random(40)), '\\', '\u0001', '', '10', 'a/b', '\u2028'])
const number = () => one(['0', '1', '2', '0.7', '1.0', '10', '100', '1e2', '12345678901234567890', '-0.0', '0.30'])
function part () { return new Map(random(5) ? [['type', 'text'], ['text', word()]] : [['type', 'image_url'], ['image_url', new Map([['url', word()]])]]) }
function message (last) {
  const role = last && random(4) ? 'user' : one(['system', 'user', 'assistant', 'tool', 'developer'])
  const out = new Map([['role', role], ['content', random(3) ? word() : random(8) ? Array.from({ length: random(3) }, part) : null]])
  if (!random(6)) out.set('id', word())
  if (!random(6)) out.set('name', word())
  if (!random(5)) out.set('tool_call_id', one(['a', 'b', 'c', word()]))
  if (!random(5)) out.set('tool_calls', Array.from({ length: 1 + random(2) }, () => new Map([['id', one(['a', 'b', 'c', word()])], ['type', 'function'], ['function', new Map([['name', word()], ['arguments', word()]])]])))
  return out
}
const callId = () => one(['a', 'b', 'c', word()])
function item () { // of /v1/responses
  const out = new Map(one([[['role', 'user'], ['content', word()]], [['type', 'message'], ['role', 'assistant'], ['content', [new Map([['type', 'output_text'], ['text', word()]])]]],
    [['type', 'function_call'], ['call_id', callId()], ['name', word()]], [['type', 'function_call_output'], ['call_id', callId()], ['output', word()]]]))
  if (!random(3)) out.set('id', word())
  if (!random(4)) out.set('status', one([null, 'completed']))
  return out
}
function block () { // of Anthropic's messages
  return new Map(one([[['type', 'text'], ['text', word()]], [['type', 'tool_use'], ['id', callId()], ['input', new Map()]], [['type', 'tool_result'], ['tool_use_id', callId()], ['content', word()]], [['type', 'image'], ['id', word()]]]))
}
const some = make => Array.from({ length: 1 + random(3) }, make)
function said (letter) {
  const n = 1 + random(4)
  switch (letter) {
    case 'C': return ['messages', Array.from({ length: n }, (_, i) => message(i === n - 1))]
    case 'P': return ['prompt', one([word(), some(word), some(() => new Num(number()))])]
    case 'E': return ['input', one([word(), some(word), some(() => new Num(number())), some(() => some(() => new Num(number())))])]
    case 'R': return ['input', random(4) ? some(item) : word()]
    default: return ['messages', some(() => new Map([['role', one(['user', 'assistant'])], ['content', random(3) ? some(block) : word()], ...(random(4) ? [] : [['id', word()]])]))]
  }
}
function body (letter) {
  const out = new Map([['model', one(['m', 'gpt-4o', '\u00e9"'])], said(letter)])
  const maybe = (name, value) => { if (!random(4)) out.set(name, value) }
  maybe('temperature', new Num(number())); maybe('top_p', new Num(number())); maybe('max_tokens', new Num(number()))
  maybe('max_completion_tokens', new Num(number())); maybe('n', new Num(one(['1', '1.0', '2', '10e-1']))); maybe('stream', !random(2))
  maybe('user', word()); maybe('metadata', new Map([['a', word()]])); maybe('seed', null); maybe('stop', [word()])
  maybe('x_' + random(5), one([true, null, word(), new Num(number()), new Map([['z', null], ['y', [new Num(number())]]])]))
  maybe('max_newer', new Num(number())); maybe('stream_options', new Map([['include_usage', true]])); maybe('cache', new Map([['ttl', new Num('5')]]))
  maybe('system', word()); maybe('instructions', word()); maybe('tool_choice', new Map([['id', 'a'], ['tool_call_id', 'b']]))
  return out
}

const shuffled = list => { for (let i = list.length - 1; i > 0; i--) { const j = random(i + 1);[list[i], list[j]] = [list[j], list[i]] } return list }
const blank = () => random(4) ? '' : one([' ', '\n', '\t', '\r\n '])
function respellNumber (text) {
  const plain = canonicalNumber(text)
  if (plain === '0') return one(['0', '-0', '0.0', '0e5', '-0.00E-3'])
  const [, sign, digits, power = '0'] = /^(-?)(\d+)(?:e(-?\d+))?$/.exec(plain), p = Number(power)
  switch (random(4)) {
    case 0: return plain
    case 1: return sign + digits + '000' + one(['e', 'E']) + (p - 3)
    case 2: return sign + digits[0] + '.' + digits.slice(1) + '00e' + one(p + digits.length - 1 < 0 ? [''] : ['', '+', '+00']) + (p + digits.length - 1)
    default: return text
  }
}
function respell (value) {
  if (typeof value === 'string') return '"' + [...spelled(value).slice(1, -1).matchAll(/\\u....|\\.|[^\\]/gsu)].map(([c]) => random(6) || c[0] === '\\' ? (c === '\\n' && !random(2) ? '\\u000A' : c) : [...c].flatMap(x => Array.from({ length: x.length }, (_, i) => '\\u' + x.charCodeAt(i).toString(16).padStart(4, '0'))).join('')).join('') + '"'
  if (value instanceof Num) return respellNumber(value.text)
  if (Array.isArray(value)) return '[' + blank() + value.map(respell).join(blank() + ',' + blank()) + ']'
  if (value instanceof Map) return '{' + blank() + shuffled([...value.keys()]).map(name => respell(name) + blank() + ':' + blank() + respell(value.get(name))).join(',' + blank()) + blank() + '}'
  return String(value)
}

// ---- streams ----

const lines = ['data: {"a":1}', 'data:x', 'data', 'data: ', 'event: error', 'event:', ': comment', ':', 'id: 5', 'retry: 1', 'data : x', ' data: x', 'datum: x', 'data: a:b', 'error: x', 'é: x', 'data:  two', '']
const ends = ['\n', '\r\n', '\r']
function stream () {
  let text = random(8) ? '' : '\ufeff'
  const end = random(3) ? [one(ends)] : ends
  for (let n = random(12); n > 0; n--) text += one(lines) + one(end) + (random(2) ? one(end) : '')
  if (!random(3)) text += one(lines)
  let bytes = Buffer.from(text)
  if (!random(4)) bytes = mutate(bytes)
  const seed = Buffer.alloc(4)
  seed.writeUInt32LE(random(0xffffffff))
  return Buffer.concat([seed, bytes])
}

// ---- the comparison ----

let questions = [], wrong = 0
function show (q, got, wanted) { console.log(q.letter, JSON.stringify(q.bytes.toString('latin1')), got === undefined ? '' : '\n  got    ' + got + '\n  wanted ' + wanted) }
function expected (q) {
  if (q.letter === 'S') return events(q.bytes.subarray(4))
  const parsed = read(q.bytes)
  if (q.letter === 'J') return parsed ? '+' + Buffer.from(write(parsed.value)).toString('latin1') : '-'
  if (!parsed || !(parsed.value instanceof Map)) return '-'
  const { text, keys } = form(q.letter, parsed.value)
  return '+' + keys + '\n' + Buffer.from(text).toString('latin1')
}

async function main () {
  const pool = seeds.map(text => Buffer.from(text)), until = Date.now() + seconds * 1000, counts = { J: 0, S: 0, bodies: 0, accepted: 0 }
  while (Date.now() < until && wrong < 5) {
    questions = []
    for (let i = 0; i < 400; i++) {
      const kind = random(10)
      if (kind < 5) questions.push({ letter: 'J', bytes: random(50) ? mutate(one(pool)) : deep() })
      else if (kind < 7) questions.push({ letter: 'S', bytes: stream() })
      else { // a body, spelled in two ways
        const letter = random(2) ? 'C' : one(['P', 'E', 'R', 'M']), value = body(letter)
        questions.push({ letter, bytes: Buffer.from(respell(value)) }, { letter, bytes: Buffer.from(respell(value)), same: true })
      }
    }
    const got = await answersTo(questions)
    for (let i = 0; i < questions.length; i++) {
      const q = questions[i], answer = got[i].toString('latin1'), want = expected(q)
      counts['JS'.includes(q.letter) ? q.letter : 'bodies']++
      if (answer !== want || (q.same && answer !== got[i - 1].toString('latin1'))) {
        wrong++
        show(q, answer, want)
      }
      if (q.letter === 'J' && answer[0] === '+') {
        counts.accepted++
        if (pool.length < 4000) pool.push(q.bytes)
        else pool[seeds.length + random(4000 - seeds.length)] = q.bytes
      }
    }
  }
  ended = true
  child.stdin.end()
  const said = `${counts.J} JSON texts (${counts.accepted} accepted), ${counts.bodies} bodies, ${counts.S} streams in ${seconds} s, seed ${seedText || 1}`
  console.log(wrong ? `FAIL - gateway/text and Node disagree: ${said}` : `ok - gateway/text and Node agree: ${said}`)
  process.exitCode = wrong ? 1 : 0
}
main()
