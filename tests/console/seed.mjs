// seed.mjs - what a server holds that has been used for a while: a cache with labels and pairs to judge, sets with
// segments, tenants, a slow log. The same at each run: random numbers of our own.
export const evil = '<img src=x onerror="window.hurt=1"> & <b>bold</b>';

export function randoms(seed) {
    let state = seed >>> 0;
    const next = () => {
        state = (state + 0x6d2b79f5) >>> 0;
        let t = Math.imul(state ^ (state >>> 15), 1 | state);
        t ^= t + Math.imul(t ^ (t >>> 7), 61 | t);
        return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
    const normal = () => Math.sqrt(-2 * Math.log(next() + 1e-12)) * Math.cos(2 * Math.PI * next());
    return {next, normal};
}

const blob = numbers => Buffer.from(Float32Array.from(numbers).buffer);
export const subjects = [
    'reset my password',
    'change my address',
    'cancel my order',
    'track a parcel',
    'return a gift',
    'pay by invoice',
    'use a voucher',
    'close my account'
];
export const ways = [
    'How do I',
    'How can I',
    'What must I do to',
    'Where can I',
    'I want to',
    'Please help me to',
    'Is it possible to',
    'Tell me how to'
];

// A cache of questions that are asked in other words: labels for most audits, pairs to judge for the last ones.
export async function seedCache(server, {name = 'llm', dim = 32, asked = 800} = {}) {
    const {next, normal} = randoms(7);
    await server.run('SC.CREATE', name, 'DIM', dim, 'ENCODER', 'hand@1', 'MEMORY', 64 << 20);
    await server.run('SC.CAT.SET', name, 'faq', 'RISK', '0.05', 'AUDIT', '0.3', 'QUOTA', '32mb');
    await server.run('SC.CAT.SET', name, 'code', 'SIM', '0.92', 'TTL', '3600000', 'ENTRIES', '1000');
    await server.run('SC.CAT.SET', name, 'faq.exact', 'MODE', 'exact');
    await server.run('SC.CAT.SET', name, 'quiet', 'RISK', '0.01');
    const base = subjects.map(() => Array.from({length: dim}, normal));
    const around = (s, spread) => base[s].map(value => value + spread * normal());
    const waiting = [];
    for (let s = 0; s < subjects.length; s++)
        for (let w = 0; w < ways.length; w++) {
            const tenant = (s + w) % 3 ? 'acme' : 'bolt';
            waiting.push(
                server.run(
                    'SC.PUT',
                    name,
                    'CAT',
                    'faq',
                    'SCOPE',
                    'tenant',
                    tenant,
                    'HASH',
                    'h' + s + '.' + w,
                    'VEC',
                    blob(around(s, 0.25)),
                    'TEXT',
                    ways[w] + ' ' + subjects[s] + '?',
                    'VALUE',
                    'To ' + subjects[s] + ', open the account page and follow the steps there.',
                    'TOKENS',
                    60,
                    120,
                    'COST',
                    '0.002',
                    'LLMMS',
                    1400
                )
            );
        }
    await Promise.all(waiting);
    await server.run(
        'SC.PUT',
        name,
        'CAT',
        'faq',
        'SCOPE',
        'tenant',
        'acme',
        'VEC',
        blob(Array.from({length: dim}, normal)),
        'TEXT',
        evil,
        'VALUE',
        evil
    );
    let left = 24; // pairs to judge
    const one = async i => {
        const s = Math.floor(next() * subjects.length),
            other = next() < 0.3,
            spread = 0.15 + next() * 0.9,
            careful = next() < 0.97;
        const vector = other ? around(s, 1.6) : around(s, spread);
        const exact = next() < 0.15 ? ['HASH', 'h' + s + '.' + (i % 8)] : ['HASH', 'q' + i];
        const said = await server.run(
            'SC.GET',
            name,
            'CAT',
            'faq',
            'SCOPE',
            'tenant',
            next() < 0.6 ? 'acme' : 'bolt',
            ...exact,
            'VEC',
            blob(vector),
            'TEXT',
            (other ? 'Something else about how to ' : 'Could you say how to ') +
                subjects[s] +
                ', number ' +
                'abcdefgh'[i % 8] +
                '?',
            'NOLEASE'
        );
        if (said.audit !== undefined && said.audit !== null) {
            if (i > asked - 350 && left > 0) left--;
            else
                await server.run(
                    'SC.AUDIT',
                    'PUT',
                    name,
                    said.audit,
                    said.similarity > 0.62 && careful && !other ? 'GOOD' : 'BAD'
                );
        }
    };
    const at_once = 8; // so that labels come while there are questions
    for (let i = 0; i < asked; i += at_once) await Promise.all(Array.from({length: at_once}, (_, k) => one(i + k)));
    for (let i = 0; i < 5; i++)
        await server.run('SC.GET', name, 'CAT', 'faq', 'SCOPE', 'tenant', 'acme', 'TEXT', evil, 'NOLEASE');
    await server.run(
        'SC.PUT',
        name,
        'CAT',
        'code',
        'HASH',
        'c1',
        'VEC',
        blob(Array.from({length: dim}, normal)),
        'TEXT',
        'sort a list in C',
        'VALUE',
        'qsort'
    );
}

export async function seedSets(server, {rows = 1500, dim = 32} = {}) {
    const {next, normal} = randoms(11);
    const kinds = ['shoe', 'coat', 'hat', 'bag'];
    const centres = kinds.map(() => Array.from({length: dim}, () => 1.4 * normal()));
    const waiting = [];
    await server.run('VCREATE', 'items', 'DIM', dim, 'MEMORY', 1 << 20);
    for (let i = 0; i < rows; i++) {
        const k = Math.floor(next() * kinds.length);
        const values = centres[k].map(value => (value + normal()).toFixed(4));
        waiting.push(
            server.run(
                'VADD',
                'items',
                'VALUES',
                dim,
                ...values,
                'item:' + i,
                'SETATTR',
                JSON.stringify({kind: kinds[k], price: Math.round(next() * 200)})
            )
        );
        if (i === rows - 200) {
            await Promise.all(waiting.splice(0));
            await server.run('VSEAL', 'items');
        }
    }
    await Promise.all(waiting);
    await server.run('VADD', 'colours', 'VALUES', 3, 1, 0.5, 0, 'orange');
    await server.run('VADD', 'colours', 'VALUES', 3, 0, 0.4, 1, 'blue');
    await server.run('VADD', 'colours', 'VALUES', 3, 0.5, 0, 1, evil, 'SETATTR', JSON.stringify({note: evil}));
    await server.run('VCREATE', 'docs', 'DIM', 3, 'TENANTS');
    for (const [at, tenant] of ['acme', 'bolt', 'corp'].entries())
        for (let i = 0; i < 60; i++) {
            const values = [0, 1, 2].map(k => next() + (k === at ? 1 : 0));
            waiting.push(server.run('VADD', 'docs', 'VALUES', 3, ...values, tenant + i, 'TENANT', tenant));
        }
    await Promise.all(waiting.splice(0));
    for (let i = 0; i < 30; i++)
        waiting.push(
            server.run(
                'VSIM',
                'docs',
                'VALUES',
                3,
                next(),
                next(),
                next(),
                'TENANT',
                i % 3 ? 'acme' : i % 2 ? 'bolt' : 'corp'
            )
        );
    for (let i = 0; i < 40; i++) waiting.push(server.run('VSIM', 'items', 'ELE', 'item:' + i, 'COUNT', 10));
    await Promise.all(waiting);
    await server.run('CONFIG', 'SET', 'slowlog-log-slower-than', '100');
    for (let i = 0; i < 5; i++) await server.run('VSIM', 'items', 'ELE', 'item:' + i, 'COUNT', 10, 'TRUTH');
    await server.run('CONFIG', 'SET', 'slowlog-log-slower-than', '-1');
}
