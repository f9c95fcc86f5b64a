// states.mjs BUILD_DIR FOLDER - states in which a view must not say what is not so: parts that the server refuses, users who
// may not change, more categories than the API answers of, sets that change, a gateway that began anew, days that are over.
import {join} from 'node:path';
import {check, failed, launch, open, part, settled, text, until} from './browser.mjs';
import {resp} from './resp.mjs';
import {end, gateway, model, server} from './rig.mjs';
import {press} from './views.mjs';

const [build, folder] = process.argv.slice(2);
const settings = ['--set', 'ui=yes'];
let browser;

const vector = (...numbers) => Buffer.from(Float32Array.from(numbers).buffer);
const figure = (page, label) =>
    page.evaluate(
        wanted =>
            [...document.querySelectorAll('.figures > div')].find(one => one.querySelector('dt').textContent === wanted)
                ?.innerText,
        label
    );
const user = page => page.$eval('.side-end', node => node.innerText);
const click = (page, selector, words) =>
    page.evaluate(
        (where, wanted) => [...document.querySelectorAll(where)].find(one => one.textContent.startsWith(wanted)).click(),
        selector,
        words
    );

// What the page asks, and how often it has waited: two seconds pass in 20 ms.
function watched() {
    const real = window.setTimeout,
        asked = window.fetch;
    window.polls = 0;
    window.asked = [];
    window.setTimeout = (call, ms, ...rest) => real(call, ms === 2000 ? (window.polls++, 20) : ms, ...rest);
    window.fetch = (...what) => (window.asked.push((what[1].method || 'GET') + ' ' + what[0]), asked(...what));
}

async function seed(redis) {
    await redis.run('SC.CREATE', 'shop', 'DIM', 4);
    await redis.run('SC.CAT.SET', 'shop', 'faq', 'RISK', '0.05');
    const put = (hash, words, value) =>
        redis.run('SC.PUT', 'shop', 'CAT', 'faq', 'HASH', hash, 'VEC', vector(1, 0, 0, 0), 'TEXT', words, 'VALUE', value);
    await put('h1', 'why?', 'because <b>so</b> ' + 'x'.repeat(20000));
    for (let i = 0; i < 6; i++) await redis.run('SC.GET', 'shop', 'CAT', 'faq', 'HASH', 'h1', 'NOLEASE');
    for (let i = 0; i < 4; i++) await redis.run('VADD', 'few', 'VALUES', 2, i, 1, 'e' + i);
}

// Signed in as a user of the server, in a page of its own.
async function as(base, name, route) {
    const one = await open(browser, base, {route, expected: [/401|403/]});
    await until(one.page, () => document.querySelector('form.login'));
    await one.page.type('[name=user]', name);
    await one.page.type('[name=secret]', 'secret');
    await one.page.keyboard.press('Enter');
    await until(one.page, () => document.querySelector('main form.login') === null);
    await settled(one.page);
    return one;
}

// ---- rights by part ----

async function parts(base, redis) {
    const without = {top: 'SC.TOP', tune: 'SC.TUNE', hist: 'SC.HIST', config: 'CONFIG', segments: 'VSEGMENTS'};
    for (const [name, command] of Object.entries(without))
        await redis.run('ACL', 'SETUSER', 'no-' + name, 'on', '>secret', '~*', '+@all', '-' + command);
    await redis.run('ACL', 'SETUSER', 'no-stats', 'on', '>secret', '~*', '+@all', '-sc.stats');
    const refusal = command => new RegExp("no permissions to run the '" + command);

    let {page, complaints, go} = await as(base, 'no-top', 'category/shop/faq');
    check(
        'without SC.TOP a category has its figures, and the sentence where entries were',
        refusal('sc.top').test(await text(page, '[aria-label="Entries"]')) &&
            /6 requests/.test(await figure(page, 'Hit rate')) &&
            (await page.$eval('#trouble', node => node.hidden)),
        await text(page)
    );
    await page.close();

    ({page, go} = await as(base, 'no-tune', 'category/shop/faq'));
    check(
        'without SC.TUNE there is the sentence in the place of threshold, budget and curve',
        refusal('sc.tune').test(await figure(page, 'Threshold')) &&
            refusal('sc.tune').test(await figure(page, 'Budget used')) &&
            refusal('sc.tune').test(await text(page, '[aria-label="Threshold curve"]')) &&
            /6 requests/.test(await figure(page, 'Hit rate')) &&
            (await page.$eval('#trouble', node => node.hidden)),
        await text(page)
    );
    await go('categories/shop');
    const row = await page.$eval('tbody tr', node => node.innerText);
    check(
        'and in the table no budget that is made up',
        /refused/.test(row) && !/0\.0 %\s*of/.test(row) && refusal('sc.tune').test(await text(page)),
        row
    );
    await page.close();

    ({page} = await as(base, 'no-hist', 'category/shop/faq'));
    check(
        'without SC.HIST there is the sentence in the place of the histogram',
        refusal('sc.hist').test(await text(page, '[aria-label="Similarity of look-ups"]')) &&
            /why\?/.test(await text(page, '[aria-label="Entries"]')),
        await text(page)
    );
    await page.close();

    ({page, go} = await as(base, 'no-stats', 'tenants/shop'));
    const scopes = await text(page);
    check(
        'without SC.STATS scopes are not said to be empty',
        refusal('sc.stats').test(scopes) && !/No cache has entries/.test(scopes),
        scopes
    );
    await go('category/shop/faq');
    check('nor a category to be unknown', /sc.stats/.test(await text(page)), await text(page));
    await page.close();

    ({page} = await as(base, 'no-config', 'server'));
    check(
        'without CONFIG there is the sentence in the place of both lists of settings',
        refusal('config').test(await text(page, '[aria-label="Settings"]')) &&
            refusal('config').test(await text(page, '[aria-label="Settings of the gateway"]')),
        await text(page, '[aria-label="Settings of the gateway"]')
    );
    await page.close();

    await redis.run('VCREATE', 'sealed', 'DIM', 2);
    for (let i = 0; i < 20; i++) await redis.run('VADD', 'sealed', 'VALUES', 2, i, 1, 'e' + i);
    await redis.run('VSEAL', 'sealed');
    ({page, complaints} = await as(base, 'no-segments', 'sets/sealed'));
    const made = await text(page, '[aria-label="Segments of sealed"]');
    check(
        'without VSEGMENTS a set is not said to have none',
        refusal('vsegments').test(made) && !/No segment/.test(made),
        made
    );
    check('parts that are refused: no error', complaints.length === 0, complaints.join('\n'));
    await page.close();
}

// ---- who may change ----

const enabled = (page, where) =>
    page.$$eval(where + ' button:not(:disabled)', list => list.map(one => one.textContent).join(' '));

async function looker(base, redis) {
    await redis.run('ACL', 'SETUSER', 'looker', 'on', '>secret', '~*', '+@read', '-@admin', '+info', '+acl|whoami');
    await redis.run('ACL', 'SETUSER', 'pinner', 'on', '>secret', '~*', '+@read', '-@admin', '+info', '+acl|whoami', '+sc.pin');
    const {page, complaints, go} = await as(base, 'looker', 'category/shop/faq');
    check('a user who may read only is told so', /looker, read only/.test(await user(page)), await user(page));
    await page.evaluate(() => document.querySelector('tbody button').click());
    check(
        'what such a user may not do is off',
        (await enabled(page, 'dialog')) === 'Close' &&
            (await page.$$eval('main button', list => list.find(one => one.textContent === 'Change').disabled)),
        await enabled(page, 'dialog')
    );
    await go('labels/shop');
    check(
        'and Labels says that one may look, but not judge',
        /look, but not judge/.test(await text(page)) && !/no answer/.test(await user(page)),
        (await text(page)) + (await user(page))
    );
    check('a user who may read only: no error', complaints.length === 0, complaints.join('\n'));
    await page.close();
    const other = await as(base, 'pinner', 'category/shop/faq');
    await other.page.evaluate(() => document.querySelector('tbody button').click());
    check(
        'who may pin and no more, has that button',
        (await enabled(other.page, 'dialog')) === 'Pin Close' && /may not: /.test(await user(other.page)),
        [await enabled(other.page, 'dialog'), await user(other.page)]
    );
    await other.page.close();
}

// The gateway's own user may not ask what others may: the first refusal tells.
async function refusedOnce(base, redis) {
    const {page, go} = await as(base, 'looker', 'category/shop/faq');
    await page.evaluate(() => document.querySelector('tbody button').click());
    check('what is not known may be tried', /Pin/.test(await enabled(page, 'dialog')), await enabled(page, 'dialog'));
    await click(page, 'dialog button', 'Pin');
    await until(page, () => /no permissions to run the 'sc.pin'/.test(document.querySelector('main').innerText));
    await page.evaluate(() => document.querySelector('tbody button').click());
    check(
        'once refused it is off, the frame says so, and nothing was changed',
        !/Pin/.test(await enabled(page, 'dialog')) &&
            /may not: pin/.test(await user(page)) &&
            !(await redis.run('SC.TOP', 'shop', 'faq', 1))[0].pinned,
        [await enabled(page, 'dialog'), await user(page)]
    );
    await page.keyboard.press('Escape');
    await go('labels/shop');
    check(
        'labels that are refused leave an empty state',
        /look, but not judge/.test(await text(page)) && !/no answer/.test(await user(page)),
        (await text(page)) + (await user(page))
    );
    await page.close();
}

// ---- what changes meanwhile ----

async function sets(base, redis) {
    const {page, complaints} = await open(browser, base, {route: 'sets/few', before: watched});
    await settled(page);
    const scans = () => page.evaluate(() => window.asked.filter(one => /GET .*\/sets\b/.test(one)).length);
    await until(page, () => window.polls > 12);
    const first = await scans();
    const polls = await page.evaluate(() => window.polls);
    await until(page, wanted => window.polls > wanted, polls + 10);
    check('sets are sought once and then asked by name', (await scans()) === first && first < 10, [first, await scans()]);
    await redis.run('VADD', 'new-one', 'VALUES', 2, 1, 1, 'a');
    check(
        'a set that is made while one looks is there',
        await until(page, () => document.querySelector('main').innerText.includes('new-one'), null, 10),
        await text(page)
    );
    await redis.run('VADD', 'few', 'VALUES', 2, 9, 1, 'e9');
    check(
        'the details of a set follow its size',
        await until(
            page,
            () => {
                const names = [...document.querySelectorAll('[aria-label="What few is made of"] dt')];
                return names.find(one => one.textContent === 'size')?.nextSibling.textContent === '5';
            },
            null,
            10
        ),
        await text(page, '[aria-label="What few is made of"]')
    );
    const before = await scans();
    await page.keyboard.press('r');
    check('r seeks sets again', await until(page, was => window.asked.filter(one => /GET .*\/sets\b/.test(one)).length > was, before, 10));
    check('sets: no error', complaints.length === 0, complaints.join('\n'));
    await page.close();
}

async function categories(base, redis) {
    await redis.run('SC.CREATE', 'many', 'DIM', 4);
    for (let i = 0; i < 70; i++) await redis.run('SC.CAT.SET', 'many', 'c' + String(i).padStart(2, '0'), 'SIM', '0.9');
    const known = (await redis.run('SC.CAT.LIST', 'many')).length;
    const {page, complaints, go} = await open(browser, base, {route: 'categories/many', expected: [/404/]});
    await settled(page);
    check(
        'a list that is cut says of how many',
        (await text(page)).includes('The first 64 of ' + known + ' categories'),
        (await text(page)).slice(0, 600)
    );
    await go('category/many/c69');
    check('the category that is named is opened', (await text(page, 'h1')) === 'Category c69', await text(page, 'h1'));
    const list = await page.$$eval('.pick select option', all => all.map(one => one.value));
    check('and the list has all', list.includes('c00') && list.includes('c69'), list);
    await go('category/many/nope');
    check(
        'another is not opened in the place of one that is not there',
        (await text(page, 'h1')) === 'Category nope' && /no category 'nope'/.test(await text(page, '#trouble')),
        await text(page)
    );
    check('categories: no error', complaints.length === 0, complaints.join('\n'));
    await page.close();
}

async function slider(base, redis) {
    const asked = [];
    const {page, complaints} = await open(browser, base, {route: 'category/labelled/faq', before: watched});
    await settled(page);
    await until(page, () => window.polls > 3);
    const shown = () => text(page, 'output');
    asked.push(...(await page.evaluate(() => window.asked.filter(one => /risk=/.test(one)))));
    check(
        'the slider asks nothing before it is moved',
        asked.length === 0 && !/With a budget/.test(await shown()),
        [asked, await shown()]
    );
    await page.$eval('input[type=range]', node => {
        node.value = '-0.8';
        node.dispatchEvent(new Event('input'));
    });
    await until(page, () => document.querySelector('output').innerText.includes('With a budget of'));
    const risks = await page.evaluate(() => window.asked.filter(one => /risk=/.test(one)).map(one => /risk=([^&]*)/.exec(one)[1]));
    check(
        'what it says, asks and offers is one value',
        /With a budget of 16 % /.test(await shown()) && /RISK 0\.16$/.test((await shown()).trim()) && risks.join() === '0.16',
        [await shown(), risks]
    );
    await page.$eval('input[type=range]', node => {
        node.value = Math.log10(0.05);
        node.dispatchEvent(new Event('input'));
    });
    await until(page, () => document.querySelector('output').innerText.includes('5 %'));
    check('its steps meet plain figures', /With a budget of 5 % /.test(await shown()), await shown());
    check('slider: no error', complaints.length === 0, complaints.join('\n'));
    await page.close();
}

// A curve needs labels.
async function seedLabels(redis) {
    await redis.run('SC.CREATE', 'labelled', 'DIM', 4);
    await redis.run('SC.CAT.SET', 'labelled', 'faq', 'RISK', '0.05', 'AUDIT', '1');
    await redis.run('SC.CAT.SET', 'labelled', 'fixed', 'SIM', '0.9', 'AUDIT', '1');
    for (const category of ['faq', 'fixed'])
        await redis.run('SC.PUT', 'labelled', 'CAT', category, 'VEC', vector(1, 0, 0, 0), 'TEXT', 'why', 'VALUE', 'so', 'COST', '0.5', 'HASH', 'h');
    for (let i = 0; i < 8; i++) await redis.run('SC.GET', 'labelled', 'CAT', 'fixed', 'HASH', 'h', 'NOLEASE');
    for (let i = 0; i < 3; i++) await redis.run('SC.GET', 'labelled', 'CAT', 'fixed', 'VEC', vector(1, 0.1, 0, 0), 'NOLEASE');
    for (let i = 0; i < 40; i++) {
        const said = await redis.run('SC.GET', 'labelled', 'CAT', 'faq', 'VEC', vector(1, i / 50, 0, 0), 'TEXT', 'q' + i, 'NOLEASE');
        if (said.audit) await redis.run('SC.AUDIT', 'PUT', 'labelled', said.audit, i < 30 ? 'GOOD' : 'BAD');
    }
}

async function money(base, redis) {
    const info = await redis.run('INFO', 'cache');
    const [saved, audits] = ['saved', 'audits'].map(name => Number(new RegExp('cache_cost_' + name + ':(.*)').exec(info)?.[1]));
    const {page} = await open(browser, base);
    await settled(page);
    const shown = (await figure(page, 'Money saved')).replace(/\s+/g, ' ');
    check(
        'money saved is shown less what audits cost',
        audits > 0 && shown.includes('less $' + audits.toFixed(2) + ' of audits') && shown.includes('$' + (saved - audits).toFixed(2)),
        [shown, saved, audits]
    );
    await page.close();
}

// Series of nothing but zeros are not drawn, and said to be none; errors of upstreams are a figure as soon as there are some.
async function zeros(port) {
    const dead = await gateway(build, join(folder, 'dead'), port, ...settings, '--upstream', 'http://127.0.0.1:1');
    const body = JSON.stringify({model: 'm', messages: [{role: 'user', content: 'is anybody there'}]});
    const headers = {'Content-Type': 'application/json', Authorization: 'Bearer sk-dead'};
    const {page, complaints} = await open(browser, dead.url + '/ui', {before: watched});
    await settled(page);
    const hidden = label =>
        page.evaluate(wanted => [...document.querySelectorAll('.figures > div')].find(one => one.querySelector('dt').textContent === wanted).hidden, label);
    check('without an error there is no figure of errors', (await hidden('Upstream errors')) && (await hidden('Encoder errors')), await text(page));
    for (let i = 0; i < 4; i++) await (await fetch(dead.url + '/v1/chat/completions', {method: 'POST', headers, body})).text();
    const seen = await until(
        page,
        () =>
            parseFloat(
                [...document.querySelectorAll('.figures > div')].find(one => one.querySelector('dt').textContent === 'Upstream errors').querySelector('dd').textContent
            ) > 0,
        null,
        20
    );
    const health = await (await fetch(dead.url + '/health')).json();
    check(
        'errors of upstreams are a figure, a second and in all',
        seen &&
            !(await hidden('Upstream errors')) &&
            (await hidden('Encoder errors')) &&
            health.upstreams[0].errors > 0 &&
            (await figure(page, 'Upstream errors')).includes('0 of 1 healthy; ' + health.upstreams[0].errors + ' since the start'),
        [await text(page), health.upstreams]
    );
    let fields, points;
    const sum = name => points.reduce((all, point) => all + point[fields.indexOf(name)], 0);
    const end = Date.now() + 10000;
    do { // a second is there when it is over
        await new Promise(done => setTimeout(done, 100));
        ({fields, points} = await (await fetch(dead.url + '/ui/api/history')).json());
    } while (sum('upstream_errors') < health.upstreams[0].errors && Date.now() < end);
    check('and in the API by time', sum('upstream_errors') === health.upstreams[0].errors && sum('encoder_errors') === 0, [fields, sum('upstream_errors'), health.upstreams]);
    await until(page, () => /hidden, all zero or unknown: ./.test(document.querySelector('[aria-label=Requests] .zeros').textContent));
    const legend = await page.$$eval('[aria-label=Requests] .legend li:not(.muted)', list => list.map(one => [one.firstChild.nextSibling.textContent, one.hidden]));
    const zero = await text(page, '[aria-label=Requests] .zeros');
    const kinds = {'miss, negative, bypass': ['miss', 'negative', 'bypass']};
    check(
        'a series of nothing but zeros is not drawn, and said to be hidden',
        legend.length > 4 &&
            legend.some(one => !one[1]) &&
            legend.every(([name, off]) => off === !(kinds[name] || [name]).some(sum) && (!off || zero.includes(name))) &&
            complaints.length === 0,
        [legend, zero, complaints.join()]
    );
    await page.close();
}

async function entry(base) {
    const {page} = await open(browser, base, {route: 'category/shop/faq'});
    await settled(page);
    await page.evaluate(() => document.querySelector('tbody button').click());
    await until(page, () => /because/.test(document.querySelector('dialog').innerText), null, 5);
    const said = await page.$eval('dialog', node => node.innerText);
    check(
        "an entry's card shows its answer as text, cut where it is long",
        said.includes('because <b>so</b>') && said.includes('(cut here)') && said.length < 10000,
        said.slice(0, 500)
    );
    await page.close();
}

async function notPolled(base) {
    for (const route of ['map/set/few', 'labels/shop', 'playground', 'meanings']) {
        const {page} = await open(browser, base, {route});
        await settled(page);
        const words = await user(page);
        check(route + ' says that it is not polled', /not polled/.test(words) && !/live|begins/.test(words), words);
        await page.close();
    }
    const {page, go} = await open(browser, base);
    await settled(page);
    check('the overview is live', /live, every 2 s/.test(await user(page)), await user(page));
    await go('map/set/few');
    await page.evaluate(() => (document.querySelector('canvas.map').dataset.old = 'yes'));
    await page.keyboard.press('r');
    check('r reads a new map', await until(page, () => document.querySelector('canvas.map:not([data-old])'), null, 10));
    await page.close();
}

async function playgroundOfSets(base) {
    const {page, complaints} = await open(browser, base, {route: 'playground', before: watched, expected: [/400/]});
    await settled(page);
    await press(page, 'A vector set');
    await until(page, () => document.querySelector('[name=query]'));
    await page.evaluate(() => {
        const bodies = (window.bodies = []),
            asked = window.fetch;
        window.fetch = (...what) => (bodies.push(what[1].body), asked(...what));
    });
    await press(page, 'Text');
    await page.type('[name=query]', 'warm shoes');
    await page.type('[name=tenants]', 'acme bolt');
    await press(page, 'Search');
    await until(page, () => window.bodies.length > 0);
    const body = JSON.parse((await page.evaluate(() => window.bodies)).at(-1));
    await until(page, () => document.querySelector('main .note.bad'));
    check(
        'a set may be asked by text and for tenants',
        body.text === 'warm shoes' && body.element === undefined && body.tenants?.join() === 'acme,bolt',
        body
    );
    check('and without an encoder one is told', /there is no vector/.test(await text(page)), await text(page));
    check('playground: no error', complaints.length === 0, complaints.join('\n'));
    await page.close();
}

async function dates(base) {
    const {page} = await open(browser, base, {route: 'overview'});
    await settled(page);
    const [today, before] = await page.evaluate(() => [format.clock(Date.now()), format.clock(Date.now() - 3 * 864e5)]);
    check(
        'a time of another day has its date',
        /^\d\d:\d\d:\d\d$/.test(today) && /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/.test(before),
        [today, before]
    );
    await page.close();
}

// The numbers of a gateway's requests begin at 1 with it.
async function begunAnew(port, stand) {
    const where = join(folder, 'anew'),
        words = [...settings, '--upstream', 'http://127.0.0.1:' + stand.port];
    let one = await gateway(build, where, port, ...words);
    const ask = async question => {
        const body = JSON.stringify({model: 'stand-in', messages: [{role: 'user', content: question}]});
        const headers = {'Content-Type': 'application/json', Authorization: 'Bearer sk-anew'};
        await (await fetch(one.url + '/v1/chat/completions', {method: 'POST', headers, body})).text();
    };
    for (let i = 0; i < 5; i++) await ask('question ' + i);
    const {page} = await open(browser, one.url + '/ui', {route: 'requests', before: watched});
    await settled(page);
    check('five requests are there', await until(page, () => /5 of 5 requests/.test(document.querySelector('main').innerText)), await text(page));
    one.child.kill('SIGTERM');
    await new Promise(done => one.child.once('exit', done));
    one = await gateway(build, join(folder, 'anew2'), port, ...words, '--listen', '127.0.0.1:' + one.port);
    await ask('another question');
    check(
        'after the gateway began anew its requests are shown',
        await until(page, () => /1 of 1 requests/.test(document.querySelector('main').innerText), null, 15),
        await text(page)
    );
    await page.close();
}

async function main() {
    const starting = launch();
    starting.catch(() => {}); // it is waited for below
    const one = await server(build, join(folder, 'states'));
    const redis = await resp(one.port);
    await seed(redis);
    await seedLabels(redis);
    const plain = await gateway(build, join(folder, 'states'), one.port, ...settings, '--console'),
        base = plain.url + '/ui';
    browser = await starting;
    await part('money', () => money(base, redis));
    await part('sets', () => sets(base, redis));
    await part('categories', () => categories(base, redis));
    await part('slider', () => slider(base, redis));
    await part('entry', () => entry(base));
    await part('not polled', () => notPolled(base));
    await part('playground of sets', () => playgroundOfSets(base));
    await part('dates', () => dates(base));
    const stand = await model();
    await part('zeros', () => zeros(one.port));
    await part('begun anew', () => begunAnew(one.port, stand));
    // with a password for all, so that the page asks who one is; the gateway knows it, and another does not
    await redis.run('CONFIG', 'SET', 'requirepass', 'right horse');
    const secret = await resp(one.port, 'right horse');
    const knows = await gateway(build, join(folder, 'knows'), one.port, ...settings, '--console', '--set', 'server-password=right horse');
    await part('parts', () => parts(knows.url + '/ui', secret));
    await part('looker', () => looker(knows.url + '/ui', secret));
    const blind = await gateway(build, join(folder, 'blind'), one.port, ...settings, '--console');
    await part('refused once', () => refusedOnce(blind.url + '/ui', secret));
    secret.close();
    redis.close();
}

await part('the programs and the browser', main);
await browser?.close();
await end();
process.exit(failed() ? 1 : 0);
