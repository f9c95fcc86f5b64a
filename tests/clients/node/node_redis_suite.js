// node_redis_suite.js - client.ft.* and client.json.* of node-redis 4 and 6: the same calls, but for how some JSON
// paths are given and how FT.INFO comes back.
'use strict';
const {check, rejects, same} = require('../../e2e/node/checks.js');
const {films, blob, cosine, nearest, close} = require('./films.js');

const QUERY = [1, 0.05, 0, 0];
const ids = (reply, prefix) => reply.documents.map((d) => d.id.slice(prefix.length));
const sorted = (list) => [...list].sort();

function hashSchema() {
    return {
        title: {type: 'TEXT', SORTABLE: true},
        genre: {type: 'TAG'},
        tags: {type: 'TAG', SEPARATOR: ','},
        year: {type: 'NUMERIC', SORTABLE: true},
        place: {type: 'GEO'},
        vector: {
            type: 'VECTOR',
            ALGORITHM: 'HNSW',
            TYPE: 'FLOAT32',
            DIM: 4,
            DISTANCE_METRIC: 'COSINE',
            M: 16,
            EF_CONSTRUCTION: 64
        },
    };
}

const knn = (k) => ({
    PARAMS: {q: blob(QUERY)},
    SORTBY: 'distance',
    DIALECT: 2,
    LIMIT: {from: 0, size: k},
    RETURN: ['title', 'distance']
});

async function create(client, label, info) {
    check(
        label + ': ft.create', (await client.ft.create('films', hashSchema(), {ON: 'HASH', PREFIX: 'film:'})) === 'OK');
    await rejects(
        label + ': ft.create of what is there', client.ft.create('films', hashSchema(), {ON: 'HASH'}),
        /already exists/i);
    for (const film of films) {
        await client.hSet('film:' + film.id, {
            title: film.title,
            genre: film.genre,
            tags: film.tags,
            year: String(film.year),
            place: film.place,
            vector: blob(film.vector)
        });
    }
    check(label + ': ft._list', (await client.ft._list()).includes('films'));
    const seen = info(await client.ft.info('films'));
    check(
        label + ': ft.info: name, documents, prefixes',
        seen.name === 'films' && Number(seen.docs) === 6 && same(seen.prefixes, ['film:']), seen);
    check(
        label + ': ft.info: attributes', same(seen.attributes, ['title', 'genre', 'tags', 'year', 'place', 'vector']),
        seen);
}

async function search(client, label) {
    const find = async (query, options) => ids(await client.ft.search('films', query, options), 'film:');
    const all = await client.ft.search('films', '*');
    check(label + ': ft.search *', all.total === 6 && all.documents.length === 6, all);
    const near = await client.ft.search('films', '*=>[KNN 3 @vector $q AS distance]', knn(3));
    check(
        label + ': KNN',
        same(ids(near, 'film:'), nearest(QUERY, 3)) &&
            near.documents.every(
                (d, i) => close(d.value.distance, cosine(QUERY, films.find((f) => 'film:' + f.id === d.id).vector))),
        near);
    check(
        label + ': KNN with a tag',
        same(
            await find('(@genre:{science fiction})=>[KNN 3 @vector $q AS distance]', knn(3)),
            nearest(QUERY, 3, (f) => f.genre === 'science fiction')));
    check(
        label + ': VECTOR_RANGE',
        same(
            sorted(await find(
                '@vector:[VECTOR_RANGE 0.2 $q]=>{$YIELD_DISTANCE_AS: distance}',
                {PARAMS: {q: blob(QUERY)}, SORTBY: 'distance', DIALECT: 2})),
            sorted(films.filter((f) => cosine(QUERY, f.vector) <= 0.2).map((f) => f.id))));
    const finds = async (name, query, right, options) => {
        const got = await find(query, options);
        check(`${label}: ${name}: ${query}`, same(sorted(got), sorted(right)), got);
    };
    await finds('tags', '@tags:{night}', ['heat', 'stalker', 'alien']);
    await finds('one of two tags', '@genre:{horror | drama}', ['alien', 'jaws', 'ran']);
    await finds('a number', '@year:[1975 (1985]', ['stalker', 'alien', 'jaws']);
    await finds('and, not', '@tags:{night} -@genre:{crime}', ['stalker', 'alien']);
    await finds('or', '@genre:{drama} | @year:[-inf 1972]', ['ran', 'solaris']);
    await finds('a word', 'solaris', ['solaris']);
    await finds('a word by its stem', '@title:run', ['heat', 'stalker']);
    await finds('a phrase', '"the zone"', ['stalker']);
    await finds('a prefix', '@title:sta*', ['stalker']);
    await finds('a fuzzy word', '%solariz%', ['solaris']);
    await finds('a circle on the globe', '@place:[-118 34 100 km]', ['heat']);
    await finds(
        'a parameter', '@year:[$from $to]', ['stalker', 'alien'], {PARAMS: {from: '1979', to: '1979'}, DIALECT: 2});
    const sort = await client.ft.search(
        'films', '*', {SORTBY: {BY: 'year', DIRECTION: 'DESC'}, LIMIT: {from: 1, size: 2}, RETURN: ['year']});
    check(
        label + ': SORTBY, LIMIT, RETURN',
        sort.total === 6 && sort.documents.length === 2 && sort.documents[0].id === 'film:ran' &&
            same({...sort.documents[0].value}, {year: '1985'}),
        sort);
    const none = await client.ft.searchNoContent('films', '@genre:{horror}', {SORTBY: 'year'});
    check(label + ': ft.searchNoContent', none.total === 2 && same(none.documents, ['film:jaws', 'film:alien']), none);
    await rejects(label + ': no such index', client.ft.search('none', '*'), /no such index|unknown index name/i);
    await rejects(label + ': a query that does not parse', client.ft.search('films', '@genre:{'), /./);
    await rejects(
        label + ': no such parameter', client.ft.search('films', '*=>[KNN 3 @vector $q]', {DIALECT: 2}),
        /no such parameter/i);
}

async function follow(client, label) {
    const count = async (query) => (await client.ft.search('films', query, {LIMIT: {from: 0, size: 0}})).total;
    await client.multi().hSet('film:new', {genre: 'new', year: '2000'}).hSet('film:newer', {genre: 'new'}).exec();
    check(label + ': MULTI adds', (await count('@genre:{new}')) === 2);
    await client.hSet('film:new', 'genre', 'newest');
    check(label + ': hSet replaces', (await count('@genre:{new}')) === 1 && (await count('@genre:{newest}')) === 1);
    await client.hDel('film:new', 'genre');
    check(
        label + ': hDel removes a value',
        (await count('@genre:{newest}')) === 0 && (await count('@year:[2000 2000]')) === 1);
    await client.rename('film:newer', 'elsewhere');
    check(label + ': rename leaves the index', (await count('@genre:{new}')) === 0);
    await client.rename('elsewhere', 'film:back');
    check(label + ': rename enters the index', (await count('@genre:{new}')) === 1);
    await client.copy('film:back', 'film:copy');
    check(label + ': copy', (await count('@genre:{new}')) === 2);
    await client.pExpire('film:copy', 1);
    while ((await client.exists('film:copy')) === 1)
        ;
    check(label + ': what has expired is gone', (await count('@genre:{new}')) === 1);
    await client.del(['film:new', 'film:back']);
    check(label + ': del', (await count('*')) === 6);
}

async function aggregate(client, label) {
    const reply = await client.ft.aggregate('films', '*', {
        LOAD: ['@year', '@genre'],
        STEPS: [
            {
                type: 'GROUPBY',
                properties: '@genre',
                REDUCE: [{type: 'COUNT', AS: 'n'}, {type: 'AVG', property: '@year', AS: 'mean'}]
            },
            {type: 'SORTBY', BY: [{BY: '@n', DIRECTION: 'DESC'}, {BY: '@genre', DIRECTION: 'ASC'}]},
            {type: 'APPLY', expression: 'floor(@mean)', AS: 'whole'},
            {type: 'LIMIT', from: 0, size: 2},
        ],
    });
    const rows = reply.results.map((r) => ({...r}));
    check(
        label + ': ft.aggregate',
        same(
            rows,
            [
                {genre: 'horror', n: '2', mean: '1977', whole: '1977'},
                {genre: 'science fiction', n: '2', mean: '1975.5', whole: '1975'}
            ]),
        reply);
    const filtered =
        await client.ft.aggregate('films', '*', {LOAD: '@year', STEPS: [{type: 'FILTER', expression: '@year > 1980'}]});
    check(
        label + ': ft.aggregate FILTER', same(sorted(filtered.results.map((r) => r.year)), ['1985', '1995']), filtered);
    const first = await client.ft.aggregateWithCursor('films', '*', {LOAD: '@year', COUNT: 4});
    const years = first.results.map((r) => r.year);
    let cursor = first.cursor;
    while (Number(cursor) !== 0) {
        const next = await client.ft.cursorRead('films', Number(cursor));
        years.push(...next.results.map((r) => r.year));
        cursor = next.cursor;
    }
    check(
        label + ': aggregateWithCursor, cursorRead', same(sorted(years), sorted(films.map((f) => String(f.year)))),
        years);
}

async function others(client, label) {
    check(
        label + ': ft.tagVals',
        same(sorted(await client.ft.tagVals('films', 'genre')), ['crime', 'drama', 'horror', 'science fiction']));
    check(label + ': ft.alter', (await client.ft.alter('films', {maker: {type: 'TAG'}})) === 'OK');
    await client.hSet('film:heat', 'maker', 'mann');
    check(label + ': the new field is searched', (await client.ft.search('films', '@maker:{mann}')).total === 1);
    check(
        label + ': ft.aliasAdd',
        (await client.ft.aliasAdd('movies', 'films')) === 'OK' && (await client.ft.search('movies', '*')).total === 6);
    check(
        label + ': ft.aliasUpdate, ft.aliasDel',
        (await client.ft.aliasUpdate('movies', 'films')) === 'OK' && 
            (await client.sendCommand(['FT.ALIASDEL', 'movies'])) === 'OK'); // aliasDel of version 4 sends a word too many
    await rejects(
        label + ': an alias that is gone', client.ft.search('movies', '*'), /no such index|unknown index name/i);
    check(label + ': ft.explain', typeof (await client.ft.explain('films', '@genre:{horror}')) === 'string');
    check(label + ': ft.configGet', typeof (await client.ft.configGet('TIMEOUT')) === 'object');
    await rejects(
        label + ': what Quire has not says so', client.sendCommand(['FT.SUGADD', 'a', 'b', '1']),
        /FT\.SUGADD|unknown command/i);
}

async function drop(client, label) {
    check(
        label + ': ft.dropIndex keeps the hashes',
        (await client.ft.dropIndex('films')) === 'OK' && (await client.exists('film:heat')) === 1);
    await client.ft.create('films', hashSchema(), {ON: 'HASH', PREFIX: ['film:']});
    let docs = 0;
    for (let tries = 0; docs !== 6 && tries < 1000; tries++)
        docs = (await client.ft.search('films', '*', {LIMIT: {from: 0, size: 0}})).total;
    check(label + ': an index over hashes that are there', docs === 6, docs);
    check(
        label + ': ft.dropIndex DD',
        (await client.ft.dropIndex('films', {DD: true})) === 'OK' && (await client.exists('film:heat')) === 0);
    await rejects(label + ': ft.info of what is gone', client.ft.info('films'), /unknown index name|no such index/i);
}

// path: how this version takes the path of json.type and others.
async function json(client, label, path) {
    const j = client.json;
    const value = {a: 1, b: {c: 'text', d: [1, 2, 3]}, t: true, n: null, f: 1.5};
    check(
        label + ': json.set, json.get',
        (await j.set('doc', '$', value)) === 'OK' && same(await j.get('doc'), value) &&
            same(await j.get('doc', {path: '$.b.c'}), ['text']) && same(await j.get('doc', {path: '.b.c'}), 'text'));
    check(
        label + ': json.get of two paths',
        same(await j.get('doc', {path: ['$.a', '$.b.c']}), {'$.a': [1], '$.b.c': ['text']}));
    check(label + ': json.get of none', (await j.get('none')) === null);
    check(
        label + ': json.set NX, XX',
        (await j.set('doc', '$', 1, {NX: true})) === null && (await j.set('none', '$', 1, {XX: true})) === null &&
            (await client.exists('none')) === 0);
    check(
        label + ': json.type',
        same(await j.type('doc', path('$.b.d')), ['array']) && same(await j.type('doc', path('$.f')), ['number']) &&
            same(await j.type('doc', path('$.a')), ['integer']));
    check(label + ': type', (await client.type('doc')) === 'ReJSON-RL', await client.type('doc'));
    check(
        label + ': json.numIncrBy',
        same(await j.numIncrBy('doc', '$.a', 2), [3]) && same(await j.numIncrBy('doc', '$.f', 0.5), [2]));
    check(
        label + ': json.arrAppend, arrLen, arrIndex',
        same(await j.arrAppend('doc', '$.b.d', 4, 5), [5]) && same(await j.arrLen('doc', path('$.b.d')), [5]) &&
            same(await j.arrIndex('doc', '$.b.d', 4), [3]) && same(await j.arrIndex('doc', '$.b.d', 9), [-1]));
    check(
        label + ': json.arrInsert, arrTrim',
        same(await j.arrInsert('doc', '$.b.d', 0, 0), [6]) && same(await j.arrTrim('doc', '$.b.d', 1, 3), [3]) &&
            same(await j.get('doc', {path: '$.b.d'}), [[1, 2, 3]]));
    check(
        label + ': json.arrPop',
        same(label.includes('4') ? await j.arrPop('doc', '$.b.d') : await j.arrPop('doc', path('$.b.d')), [3]));
    check(
        label + ': json.objKeys, objLen',
        same(await j.objKeys('doc', path('$.b')), [['c', 'd']]) && same(await j.objLen('doc', path('$')), [5]));
    check(label + ': json.strLen', same(await j.strLen('doc', path('$.b.c')), [4]));
    if (j.toggle) // not in version 4
        check(
            label + ': json.toggle',
            (await j.toggle('doc', '$.t')).length === 1 && same(await j.get('doc', {path: '$.t'}), [false]));
    check(
        label + ': json.merge',
        (await j.merge('doc', '$', {n: 7, b: {c: null}})) === 'OK' && same(await j.get('doc', {path: '$.n'}), [7]) &&
            same(await j.get('doc', {path: '$.b'}), [{d: [1, 2]}]));
    check(
        label + ': json.mSet, mGet',
        (await j.mSet([{key: 'd1', path: '$', value: {x: 1}}, {key: 'd2', path: '$', value: {x: 2}}])) === 'OK' &&
            same(await j.mGet(['d1', 'none', 'd2'], '$.x'), [[1], null, [2]]));
    if (j.clear)
        check(
            label + ': json.clear',
            (await j.clear('doc', path('$.b.d'))) === 1 && same(await j.get('doc', {path: '$.b.d'}), [[]]));
    check(
        label + ': json.del, json.forget',
        (await j.del('doc', path('$.b'))) === 1 && (await j.forget('doc', path('$.a'))) === 1 &&
            (await j.del('doc')) === 1 && (await client.exists('doc')) === 0);
    check(label + ': del', (await client.del(['d1', 'd2'])) === 2);
    await client.set('string', 'x');
    await rejects(label + ': json.get of a string', j.get('string'), /wrong kind of value|WRONGTYPE|wrong Redis type/i);
    await client.del('string');
}

async function jsonIndex(client, label) {
    await client.ft.create(
        'songs', {
            '$.name': {type: 'TEXT', AS: 'name'},
            '$.length': {type: 'NUMERIC', AS: 'length', SORTABLE: true},
            '$.tags[*]': {type: 'TAG', AS: 'tags'},
            '$.emb': {type: 'VECTOR', AS: 'emb', ALGORITHM: 'FLAT', TYPE: 'FLOAT32', DIM: 2, DISTANCE_METRIC: 'L2'},
        },
        {ON: 'JSON', PREFIX: 'song:'});
    await client.json.set('song:1', '$', {name: 'blue train', length: 643, tags: ['jazz', 'sax'], emb: [1, 1]});
    await client.json.set('song:2', '$', {name: 'so what', length: 562, tags: ['jazz', 'trumpet'], emb: [4, 5]});
    const jazz = await client.ft.search('songs', '@tags:{jazz} @length:[600 700]');
    check(
        label + ': JSON documents are found, whole',
        jazz.total === 1 && jazz.documents[0].id === 'song:1' && same(jazz.documents[0].value.tags, ['jazz', 'sax']),
        jazz);
    const near = await client.ft.search(
        'songs', '*=>[KNN 2 @emb $q AS d]',
        {PARAMS: {q: blob([1, 2])}, SORTBY: 'd', RETURN: ['name', 'd'], DIALECT: 2});
    check(
        label + ': KNN over JSON',
        same(near.documents.map((d) => ({...d.value})), [{name: 'blue train', d: '1'}, {name: 'so what', d: '18'}]),
        near);
    await client.json.set('song:1', '$.tags', ['ballad']);
    check(
        label + ': a path that changes is followed',
        (await client.ft.search('songs', '@tags:{ballad}')).total === 1 &&
            (await client.ft.search('songs', '@tags:{jazz}')).total === 1);
    await client.json.del('song:2');
    check(label + ': json.del is followed', (await client.ft.search('songs', '*')).total === 1);
    await client.ft.dropIndex('songs', {DD: true});
}

// info: reads what this version makes of FT.INFO; path: see json.
async function suite(client, label, {info, path}) {
    await client.sendCommand(['FLUSHALL']);
    await create(client, label, info);
    await search(client, label);
    await follow(client, label);
    await aggregate(client, label);
    await others(client, label);
    await drop(client, label);
    await json(client, label, path);
    await jsonIndex(client, label);
}

module.exports = {suite};
