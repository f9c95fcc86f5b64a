// page.mjs BUILD_DIR FOLDER - the console in Chromium, against a quire-gateway and a quire-server: views with and without
// data, figures beside those of RESP, texts that look like markup, keys, rights, ten minutes of polling, widths and themes.
import {readFileSync, readdirSync} from 'node:fs';
import {join} from 'node:path';
import {accessible, check, dress, failed, launch, open, overflow, part, settled, text, until} from './browser.mjs';
import {resp} from './resp.mjs';
import {end, gateway, model, root, server} from './rig.mjs';
import {evil, randoms, seedCache, seedSets} from './seed.mjs';
import {askCache, askMap, askSet, press, views} from './views.mjs';

const [build, folder] = process.argv.slice(2);
const wide = [360, 1280, 1920];
const console_ = ['--set', 'ui=yes'];
let browser;

// ---- what can be read without a browser ----

function sources() {
    const place = join(root, 'gateway/console/page');
    const names = readFileSync(join(place, 'order.txt'), 'utf8').split('\n').filter(Boolean);
    const forbidden =
        /innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|\beval\(|new Function|setTimeout\(\s*['"]/;
    const found = names.flatMap(name =>
        readFileSync(join(place, name), 'utf8')
            .split('\n')
            .filter(line => forbidden.test(line))
            .map(line => name + ': ' + line.slice(0, 100))
    );
    check('no source makes markup or code of a text', found.length === 0, found.join('\n'));
    const there = readdirSync(place).filter(name => /\.(js|css)$/.test(name));
    check(
        'order.txt names every source',
        there.every(name => names.includes(name)),
        there.filter(name => !names.includes(name)).join(' ')
    );
    const readme = readFileSync(join(place, 'README.md'), 'utf8');
    check(
        'the README names every source',
        there.every(name => readme.includes('`' + name + '`')),
        there.filter(name => !readme.includes('`' + name + '`')).join(' ')
    );
    const anchors = file =>
        new Set(
            [...readFileSync(join(root, file), 'utf8').matchAll(/^#+ (.*)$/gm)].map(match =>
                match[1]
                    .toLowerCase()
                    .replace(/[^\w\- ]/g, '')
                    .replaceAll(' ', '-')
            )
        );
    const links = [...readFileSync(join(place, 'meanings.js'), 'utf8').matchAll(/'(docs\/[^'#]+)(?:#([^']+))?'/g)];
    const dead = links
        .filter(([, file, anchor]) => anchor && !anchors(file).has(anchor))
        .map(([, file, anchor]) => file + '#' + anchor);
    check(
        'each meaning leads to a heading of the docs',
        links.length > 20 && dead.length === 0,
        dead.join('\n') || links.length
    );
}

async function delivery(base) {
    const answer = await fetch(base + '/ui'),
        html = await answer.text(),
        policy = answer.headers.get('content-security-policy') || '';
    check('the page is at most 200 KB', Buffer.byteLength(html) <= 200 * 1024, Buffer.byteLength(html));
    console.log('# the page has ' + Buffer.byteLength(html) + ' bytes');
    check(
        'its Content-Security-Policy lets nothing in but its own',
        /default-src 'none'/.test(policy) &&
            /script-src 'sha256-/.test(policy) &&
            /style-src 'sha256-/.test(policy) &&
            /connect-src 'self'/.test(policy) &&
            /frame-ancestors 'none'/.test(policy) &&
            !/unsafe/.test(policy),
        policy
    );
}

// ---- what a page must keep in any state ----

// Names for who does not see, letters that can be read, ids that are there once.
function faults(page) {
    return page.evaluate(() => {
        const out = [],
            ids = new Set();
        const shown = node => node.getClientRects().length > 0;
        for (const node of document.querySelectorAll('[id]')) {
            if (ids.has(node.id)) out.push('id twice: ' + node.id);
            ids.add(node.id);
        }
        for (const node of document.querySelectorAll(
            'button, a[href], input, select, textarea, [role=img], canvas, dialog'
        )) {
            if (node.parentElement.closest('[role=img]')) continue; // one picture
            const name =
                node.getAttribute('aria-label') ||
                node.textContent.trim() ||
                [...(node.labels || [])]
                    .map(one => one.textContent)
                    .join('')
                    .trim();
            if (shown(node) && !name) out.push('no name: ' + node.outerHTML.slice(0, 100));
        }
        if (document.querySelectorAll('h1').length !== 1)
            out.push('headings of the first rank: ' + document.querySelectorAll('h1').length);
        const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
        const rgb = value => {
            canvas.clearRect(0, 0, 1, 1);
            canvas.fillStyle = value;
            canvas.fillRect(0, 0, 1, 1);
            return canvas.getImageData(0, 0, 1, 1).data;
        };
        const light = value =>
            [0, 1, 2]
                .map(i => value[i] / 255)
                .map(v => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
                .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
        const seen = new Set();
        for (const node of document.querySelectorAll('body *')) {
            if (
                node.closest('.skip, svg, .only-read, option, button:disabled') ||
                !shown(node) ||
                ![...node.childNodes].some(one => one.nodeType === 3 && one.data.trim())
            )
                continue;
            const ink = getComputedStyle(node).color;
            let below = node;
            while (below && rgb(getComputedStyle(below).backgroundColor)[3] < 255) below = below.parentElement;
            const ground = below ? getComputedStyle(below).backgroundColor : 'white';
            if (seen.has(ink + ground)) continue;
            seen.add(ink + ground);
            const a = light(rgb(ink)),
                b = light(rgb(ground)),
                ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (ratio < 4.5)
                out.push(
                    'contrast ' +
                        ratio.toFixed(2) +
                        ': ' +
                        node.tagName +
                        '.' +
                        node.className +
                        ' "' +
                        node.textContent.slice(0, 30) +
                        '" ' +
                        ink +
                        ' on ' +
                        ground
                );
        }
        return out.slice(0, 8);
    });
}

// Each view in both themes: it is opened in the one of the view before, and then switched.
async function everyView(base) {
    let theme = 'dark';
    const {page, complaints, go} = await open(browser, base, {dark: true});
    await settled(page);
    const led = {dark: new Set(), light: new Set()}; // where underlined figures lead
    for (const [name, route, act] of views)
        await part(name, async () => {
            await go(route);
            if (act) await act(page);
            await inTheme(page, complaints, name, theme, led[theme]);
            theme = theme === 'dark' ? 'light' : 'dark';
            await dress(page, theme);
            await until(page, wanted => document.documentElement.dataset.theme === wanted, theme);
            await inTheme(page, complaints, name, theme, led[theme]);
        });
    for (const [one, links] of Object.entries(led)) {
        const dead = await page.evaluate(
            list => list.filter(href => !document.getElementById(href.replace('#/meanings/', 'm-'))),
            [...links]
        ); // the last view is that of meanings
        check('each underlined figure, ' + one + ', leads to its meaning', links.size > 20 && dead.length === 0, [links.size, dead]);
    }
    await page.close();
}

async function inTheme(page, complaints, name, theme, led) {
    const wrong = [];
    for (const width of wide) {
        await page.setViewport({width, height: 900, deviceScaleFactor: 1});
        await page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));
        for (const one of await overflow(page)) wrong.push(width + ': ' + one);
    }
    await page.setViewport({width: 1280, height: 900, deviceScaleFactor: 1});
    check(name + ', ' + theme + ': nothing reaches out at 360, 1,280 and 1,920 px', wrong.length === 0, wrong.join('\n'));
    for (const href of await page.$$eval('main a.mean', list => list.map(one => one.getAttribute('href')))) led.add(href);
    const found = await faults(page);
    check(name + ', ' + theme + ': everything has a name and can be read', found.length === 0, found.join('\n'));
    await accessible(page, name + ', ' + theme);
    const markup = await page.evaluate(() => ({
        hurt: window.hurt,
        images: document.querySelectorAll('img, b[onclick], script:not(:last-of-type)').length
    }));
    check(name + ', ' + theme + ': data is never markup', markup.hurt === undefined && markup.images === 0, markup);
    check(name + ', ' + theme + ': no error, no other origin', complaints.length === 0, complaints.splice(0).join('\n'));
}

// What a figure means leads to a document that the gateway has, and there to the heading.
async function meaningsLead(base) {
    const {page, complaints, go} = await open(browser, base, {route: 'meanings'});
    await settled(page);
    const links = await page.$$eval('main dd a', list => list.map(one => one.getAttribute('href')));
    const dead = [];
    for (const href of [...new Set(links)]) {
        await go(href.replace('#/', ''));
        const anchor = href.split('/')[3];
        const seen = await page.evaluate(() => {
            const {id, tagName} = document.activeElement,
                box = document.activeElement.getBoundingClientRect();
            return {id, tagName, inView: box.top >= 0 && box.bottom <= innerHeight, parts: document.querySelectorAll('main .doc > *').length};
        });
        if (seen.parts < 3 || (anchor && !(seen.id === 'd-' + anchor && /^H[2-4]$/.test(seen.tagName) && seen.inView)))
            dead.push(href + ' ' + JSON.stringify(seen));
    }
    check(
        'each meaning is a link to the heading of a document that is shown',
        links.length > 30 && links.every(one => one.startsWith('#/docs/')) && dead.length === 0,
        [links.length, ...dead].join('\n')
    );
    await go('docs/cache.md');
    const first = await page.$eval('main .doc a[href^="#/docs/"]', node => node.getAttribute('href'));
    await go(first.replace('#/', ''));
    check('links of a document lead on', first !== '#/docs/cache.md' && (await page.$$('main .doc p')).length > 0, first);
    check('documents: no error, no other origin', complaints.length === 0, complaints.join('\n'));
    await page.close();
    const none = await open(browser, base, {route: 'docs/nope.md', expected: [/404/]});
    await settled(none.page);
    check(
        'a document that is not there is said in a sentence',
        /not in the program: see docs\/nope\.md/.test(await text(none.page, '#trouble')),
        await text(none.page)
    );
    await none.page.close();
}

async function nothingThere(base) {
    const {page, complaints, go} = await open(browser, base);
    await settled(page);
    const first = ['overview', 'categories', 'category', 'labels', 'playground', 'requests', 'tenants', 'sets', 'map'];
    for (const name of first)
        await part(name + ' without data', async () => {
            await go(name);
            const said = await page.$$eval('main .empty pre', list =>
                list
                    .filter(one => one.getClientRects().length)
                    .map(one => one.textContent)
                    .join('\n')
            );
            check(
                name + ' without data says what to do first',
                /redis-cli|quire-gateway|curl/.test(said) && complaints.length === 0,
                said + complaints.splice(0).join('\n')
            );
            await accessible(page, name + ' without data');
        });
    await page.close();
}

// ---- figures ----

// As the page writes a share.
const share = value => (value * 100).toFixed(value !== 0 && Math.abs(value) < 0.1 ? 2 : 1) + ' %';

const figure = (page, label) =>
    page.evaluate(wanted => {
        const div = [...document.querySelectorAll('.figures > div')].find(
            one => one.querySelector('dt').textContent === wanted
        );
        return div
            ? div.querySelector('dd.value').textContent.replaceAll(',', '') +
                  ' ' +
                  div.querySelector('dd.aside').textContent.replaceAll(',', '')
            : 'there is no ' + wanted;
    }, label);

async function figures(base, resp_) {
    const {page, complaints, go} = await open(browser, base);
    await settled(page);
    await part('figures', async () => {
        const stats = await resp_.run('SC.STATS', 'shop');
        await go('categories/shop');
        const entries = await figure(page, 'Entries'),
            requests = await figure(page, 'Requests');
        check(
            'entries, requests and misses are those of SC.STATS',
            entries.startsWith(stats.entries + ' ') && requests.startsWith(stats.requests + ' ' + stats.misses),
            [entries, requests, stats.entries, stats.requests]
        );
        const row = await page.evaluate(
            () =>
                [...document.querySelectorAll('tbody tr')].find(
                    one => one.textContent.startsWith('faq') && !one.textContent.startsWith('faq.')
                )?.innerText
        );
        const faq = await resp_.run('SC.STATS', 'shop', 'CAT', 'faq');
        check(
            'the row of a category, too',
            row?.includes(faq.threshold.toFixed(3)) && row.includes((faq.hit_rate * 100).toFixed(1)),
            row
        );
        await go('category/shop/faq');
        const tune = await resp_.run('SC.TUNE', 'shop', 'faq'),
            shown = await figure(page, 'Threshold');
        check('the threshold is that of SC.TUNE', shown.startsWith(tune.threshold.toFixed(3)), [shown, tune.threshold]);
        await go('sets/items');
        const info = await resp_.run('VINFO', 'items');
        const set = await page.evaluate(() =>
            [...document.querySelectorAll('tbody tr')]
                .find(one => one.textContent.startsWith('items'))
                .innerText.replaceAll(',', '')
        );
        check(
            'elements and segments are those of VINFO',
            set.includes(String(info.size)) && set.includes(info.index),
            set
        );
        check(
            'and memory beside the budget',
            info['memory-budget'] === 1 << 20 &&
                set.includes(share((info['resident-bytes'] + info['cache-bytes']) / info['memory-budget']) + ' of the budget of 1 MiB'),
            [set, info]
        );
        const [segment] = await resp_.run('VSEGMENTS', 'items');
        const points = segment.curve.filter(([k, , , , kind]) => k === 10 && kind === 'exact');
        const drawn = await page.$eval('[aria-label^="Calibrated recall"]', node => node.getAttribute('aria-label'));
        check(
            "the curve of recall is the calibration's",
            points.length > 1 &&
                drawn ===
                    'Calibrated recall by effort: ' +
                        points.map(p => 'effort ' + p[1] + ' ' + share(p[2])).join(', '),
            [drawn, points]
        );
        await go('tenants/shop');
        const section = Object.fromEntries(
            (await resp_.run('INFO', 'tenants'))
                .split('\r\n')
                .filter(line => line.includes(':'))
                .map(line => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1)])
        );
        const wanted = {Tenants: 'tenants', Searches: 'tenant_queries', Running: 'tenant_running', Waiting: 'tenant_waiting'};
        Object.assign(wanted, {Refused: 'tenant_refused', Reads: 'tenant_reads'});
        const differ = [];
        for (const [label, name] of Object.entries(wanted))
            if (!section[name] || !(await figure(page, label)).startsWith(section[name] + ' ')) differ.push([label, await figure(page, label), section[name]]);
        check('figures of Tenants are those of INFO', Number(section.tenant_queries) > 0 && differ.length === 0, differ);
        const cells = caption =>
            page.$$eval('[aria-label="' + caption + '"] tbody tr', list =>
                list.map(row => [...row.children].map(one => one.innerText.replaceAll(',', '').split('\n')[0]))
            );
        const costs = await cells('Tenants by cost'),
            field = (line, name) => new RegExp('(?:^|,)' + name + '=([^,]*)').exec(line)?.[1];
        const known = Object.keys(section).filter(name => /^tenant\d+$/.test(name)).map(name => section[name]);
        check(
            'and the rows of tenants, too',
            known.length > 2 &&
                costs.length === known.length &&
                known.every((line, i) => costs[i][3] === field(line, 'queries') && costs[i][5] === field(line, 'refused') && costs[i][10] === field(line, 'reads')),
            [costs, known]
        );
        const walls = (await resp_.run('SC.STATS', 'shop')).scopes;
        check(
            'scopes are those of SC.STATS',
            walls.length > 1 &&
                JSON.stringify((await cells('Scopes with most entries')).map(row => row.slice(1, 4).map(Number))) ===
                    JSON.stringify(walls.map(one => [one.entries, one.requests, one.hits])),
            [await cells('Scopes with most entries'), walls]
        );
        await go('requests');
        const of = await resp_.run('SC.STATS', 'llm'),
            chips = await page.$$eval('[aria-label=Requests] tbody tr td .chip', list => list.map(one => one.textContent));
        const times = name => chips.filter(one => one === name).length;
        check(
            'requests by what the cache said are those of SC.STATS',
            of.requests > 2 &&
                chips.length === of.requests &&
                times('exact') === of.exact &&
                times('miss') === of.misses &&
                (await text(page)).includes(chips.length + ' of ' + chips.length + ' requests'),
            [chips, of]
        );
        const near = Buffer.from(Float32Array.from({length: 32}, (_, i) => (i ? 0.1 : 1)).buffer);
        const keep = ['SC.PUT', 'shop', 'CAT', 'code', 'VEC', near, 'TEXT'];
        await resp_.run(...keep, 'convert 5 km to miles', 'VALUE', '3.1');
        for (const km of [7, 8]) await resp_.run('SC.GET', 'shop', 'CAT', 'code', 'VEC', near, 'TEXT', 'convert ' + km + ' km to miles', 'NOLEASE');
        await go('category/shop/code');
        const code = await resp_.run('SC.STATS', 'shop', 'CAT', 'code'),
            spoke = await text(page, '[aria-label="What guards did"]');
        check(
            'each guard that spoke has its count, and the others are named',
            code.guards.number === 2 &&
                Object.entries(code.guards).every(([guard, n]) => !n || spoke.replace(/\s+/g, ' ').includes('by ' + guard + ' ' + n)) &&
                !spoke.includes('by date') &&
                /Nothing was held back by: negation, literal, date, language/.test(await text(page, '[aria-label="Guards and settings"]')),
            [spoke, code.guards]
        );
        await go('server');
        const lines = await resp_.run('LOGTAIL', 200),
            log = await text(page, '[aria-label="Newest lines of the log"]');
        check(
            "the server's log is that of LOGTAIL",
            lines.length > 0 && lines.join('\n').startsWith(log.trim().split('\n').slice(0, -1).join('\n')),
            [log, lines]
        );
        await go('map/cache/shop/faq');
        const sample = await resp_.run('SC.SAMPLE', 'shop', 'CAT', 'faq', 'COUNT', 2000);
        const map = await text(page);
        check(
            'a map of a category has its entries, and colours by scope',
            map.includes(sample.length + ' entries with a vector') && /acme \(\d+\)[^]*bolt \(\d+\)/.test(map),
            map
        );
        await go('map/set/docs');
        const owned = await resp_.run('VTENANTS', 'docs'),
            coloured = await text(page, '[aria-label=Map]');
        check(
            'a map of a set is coloured by tenant, as many of each as VTENANTS says',
            Object.entries(owned).length === 3 &&
                Object.entries(owned).every(([tenant, n]) => coloured.includes(tenant + ' (' + n + ')')),
            [coloured, owned]
        );
        await page.focus('canvas.map');
        await page.keyboard.press('ArrowRight');
        const [one] = await resp_.run('VGETGRANTS', 'docs', await page.$eval('[aria-label=Chosen] dd', node => node.textContent));
        check(
            'and says whose the chosen element is',
            (await text(page, '[aria-label=Chosen]')).includes('Granted to\n' + one),
            await text(page, '[aria-label=Chosen]')
        );
        await go('map/set/items');
        await page.select('[aria-label="Colour by"]', 'tenant (granted to)');
        const none = await text(page, '[aria-label=Map]');
        check(
            'where nothing is granted it says what to do',
            none.includes('No element of the sample is granted to a tenant') && none.includes('redis-cli VGRANT items ELEMENT acme'),
            none
        );
        await page.select('[aria-label="Colour by"]', 'kind');
        check(
            'and that goes with the next colour',
            !(await text(page, '[aria-label=Map]')).includes('redis-cli'),
            await text(page, '[aria-label=Map]')
        );
        await go('overview');
        const all = await resp_.run('INFO', 'cache'),
            number = /cache_entries:(\d+)/.exec(all)[1];
        check(
            'entries of the overview are those of INFO',
            (await figure(page, 'Entries')).startsWith(number + ' '),
            await figure(page, 'Entries')
        );
        check('figures: no error', complaints.length === 0, complaints.join('\n'));
    });
    await page.close();
}

// ---- what one does ----

async function hands(base, resp_) {
    const {page, complaints, go} = await open(browser, base, {expected: [/404.*playground\/set/]}); // an element that is not there
    await settled(page);
    const focused = () =>
        page.evaluate(
            () => document.activeElement.textContent || document.activeElement.name || document.activeElement.tagName
        );

    await part('the playground by keys', async () => {
        await page.keyboard.press('Tab');
        check('the first stop of Tab leads past the navigation', /Skip/.test(await focused()), await focused());
        await page.keyboard.press('5');
        await until(page, () => document.querySelector('h1')?.textContent === 'Playground');
        await settled(page);
        check(
            'a digit opens its view, and its heading has the focus',
            (await focused()) === 'Playground',
            await focused()
        );
        await until(page, () => document.querySelector('[name=text]'));
        await page.keyboard.press('/');
        const stops = [];
        for (let i = 0; i < 12 && stops.at(-1) !== 'text'; i++) {
            stops.push(await page.evaluate(() => document.activeElement.name));
            if (stops.at(-1) !== 'text') await page.keyboard.press('Tab');
        }
        await page.keyboard.type('How do I reset my password?');
        await page.keyboard.press('Tab');
        await page.keyboard.type('shop'); // the cache
        await until(page, () => [...document.querySelectorAll('main form option')].some(one => one.value === 'faq'));
        for (let i = 0; i < 8 && !/^Ask/.test(await focused()); i++) await page.keyboard.press('Tab');
        check(
            '/ and Tab lead through the form to its button',
            stops.at(-1) === 'text' && /^Ask/.test(await focused()),
            stops.join(' ') + ' ' + (await focused())
        );
        await page.keyboard.press('Enter');
        check(
            'Enter asks, and the answer says what would have to change',
            await until(page, () => document.querySelector('main').innerText.includes('What would have to change')),
            await text(page)
        );
        await page.evaluate(() => document.activeElement.blur());
        await page.keyboard.press('?');
        const keys = await until(page, () =>
            document.querySelector('dialog[open]')?.textContent.includes('Labels: good, bad')
        );
        await accessible(page, 'the list of keys');
        await page.keyboard.press('Escape');
        check(
            '? lists the keys, Escape closes',
            keys && (await until(page, () => !document.querySelector('dialog'))),
            await text(page, 'body')
        );
        await page.keyboard.press('t');
        check('t switches the theme', (await page.$eval(':root', node => node.dataset.theme)) === 'dark');
        await page.keyboard.press('t');
    });

    await part('an exact question', async () => {
        await askCache(page, {cache: 'shop', category: 'faq', text: evil, scope: 'tenant=acme'});
        const said = await text(page);
        check(
            'a text that looks like markup is asked and shown as it is',
            said.includes('onerror') &&
                (await page.evaluate(() => window.hurt === undefined && !document.querySelector('img'))),
            said
        );
    });

    await part('labels', async () => {
        const before = (await resp_.run('SC.STATS', 'shop')).labels;
        await go('labels/shop');
        const pair = await text(page);
        check(
            'a pair is shown, without the guess',
            /Asked now/.test(pair) && !/would have said (good|bad)/.test(pair),
            pair
        );
        await page.keyboard.press('g');
        await until(page, () => /is good\./.test(document.querySelector('main').innerText));
        await page.keyboard.press('b');
        await until(page, () => /is bad\./.test(document.querySelector('main').innerText));
        check(
            'after a choice the guess is there',
            /would have said (good|bad)/.test(await text(page)),
            await text(page)
        );
        check('G and B are labels of the server', (await resp_.run('SC.STATS', 'shop')).labels === before + 2, [
            before,
            (await resp_.run('SC.STATS', 'shop')).labels
        ]);
    });

    await part('an entry', async () => {
        await go('category/shop/faq');
        const [top] = await resp_.run('SC.TOP', 'shop', 'faq', 1),
            pinned = async () => (await resp_.run('SC.TOP', 'shop', 'faq', 1))[0].pinned;
        const opened = () => page.evaluate(() => document.querySelector('tbody button').click());
        await opened();
        await accessible(page, "an entry's card");
        await page.evaluate(() =>
            [...document.querySelectorAll('dialog button')].find(one => one.textContent === 'Pin').click()
        );
        await until(page, () => /is pinned/.test(document.querySelector('main').innerText));
        check('an entry can be pinned', Boolean(await pinned()), top);
        await until(page, () => document.querySelector('tbody tr').textContent.includes('pinned'));
        await opened();
        await page.evaluate(() =>
            [...document.querySelectorAll('dialog button')].find(one => one.textContent === 'Delete').click()
        );
        const still = (await resp_.run('SC.STATS', 'shop')).entries;
        await page.evaluate(() =>
            [...document.querySelectorAll('dialog[open] button')].find(one => one.textContent === 'Delete').click()
        );
        await until(page, () => /is deleted/.test(document.querySelector('main').innerText));
        check('and deleted, after a question', (await resp_.run('SC.STATS', 'shop')).entries === still - 1, still);
        check(
            'the slider has changed nothing',
            (await resp_.run('SC.CAT.GET', 'shop', 'faq')).risk === '0.05',
            await resp_.run('SC.CAT.GET', 'shop', 'faq')
        );
    });
    await part('all entries', async () => {
        await go('category/shop/faq');
        const {entries} = await resp_.run('SC.STATS', 'shop', 'CAT', 'faq'),
            rows = () => page.$$eval('[aria-label=Entries] tbody tr', list => list.length);
        await press(page, 'all');
        await until(page, () => /so far/.test(document.querySelector('[aria-label=Entries]').innerText));
        const first = await rows();
        for (let i = 0; i < 9 && (await rows()) < entries; i++) {
            const before = await rows();
            await press(page, 'More');
            await until(page, was => document.querySelectorAll('[aria-label=Entries] tbody tr').length > was, before);
        }
        check(
            'beyond the first entries there are more, up to the last, each once',
            first === 20 && entries > 40 && (await rows()) === entries && (await text(page, '[aria-label=Entries]')).includes('these are all'),
            [first, await rows(), entries]
        );
        await page.$$eval('[aria-label=Entries] tbody button', list => list.at(-3).click());
        const answer = await until(page, () => /open the account page/.test(document.querySelector('dialog').innerText));
        check('each has its card with its answer', answer, await text(page, 'dialog'));
        await page.evaluate(() => [...document.querySelectorAll('dialog button')].find(one => one.textContent === 'Pin').click());
        await until(page, () => /is pinned/.test(document.querySelector('main').innerText));
        check(
            'what is changed there is seen there',
            await until(page, n => {
                const list = [...document.querySelectorAll('[aria-label=Entries] tbody tr')];
                return list.length === n && list.at(-3).textContent.includes('pinned');
            }, entries),
            await text(page, '[aria-label=Entries]')
        );
        await press(page, 'answered most');
        await until(page, () => document.querySelectorAll('[aria-label=Entries] tbody tr').length === 20);
        check('and the first 20 are there again', (await rows()) === 20, await rows());
    });
    await part('a question in the map', async () => {
        const {next} = randoms(17);
        await Promise.all(
            Array.from({length: 6000}, (_, i) => resp_.run('VADD', 'large', 'VALUES', 3, next().toFixed(3), next().toFixed(3), next().toFixed(3), 'l' + i))
        );
        await go('map/set/large');
        const drawn = () => page.$eval('canvas.map', node => node.toDataURL()),
            bare = await drawn();
        await askMap(page, '0.5 0.2 0.7');
        const found = await resp_.run('VSIM', 'large', 'VALUES', 3, 0.5, 0.2, 0.7, 'COUNT', 10);
        const said = await text(page, '[aria-label=Ask]'),
            outside = /(\d+) of the 10 that the server found are outside the sample[^:]*: (.*)\./.exec(said);
        const names = outside ? outside[2].split(', ').map(one => one.split(' ')[0]) : [];
        check(
            'a vector is drawn with lines to its nearest of the sample, and who of the found is outside of it is said',
            /Nearest of the sample \(the lines\)\n(l\d+ [.\d]+,? ?){5}/.test(said) &&
                (await drawn()) !== bare &&
                names.length === Number(outside?.[1]) &&
                names.every(one => found.includes(one)) &&
                found.every(one => said.includes(one)),
            [said, found]
        );
        await askMap(page, 'no such element');
        check(
            'an element that is not there is said',
            await until(page, () => document.querySelector('[aria-label=Ask] .note.bad')),
            await text(page, '[aria-label=Ask]')
        );
        await go('playground');
        await askSet(page, 'items', 'item:11');
        await page.evaluate(() => [...document.querySelectorAll('main a')].find(one => one.textContent === 'Show it on the map').click());
        await until(page, () => document.querySelector('h1').textContent === 'Map');
        await settled(page);
        const shown = await text(page, '[aria-label=Ask]'),
            own = await resp_.run('VSIM', 'items', 'ELE', 'item:11', 'COUNT', 10);
        check(
            'what the playground has asked is shown on the map',
            /Asked \(the square\)\nitem:11\n/.test(shown) && own.every(one => shown.includes(one)) && /All that the server found are in the sample/.test(shown),
            [shown, own]
        );
        await go('map/set/large');
        check('and on no other', !/Asked \(the square\)/.test(await text(page, '[aria-label=Ask]')), await text(page, '[aria-label=Ask]'));
        await go('map/cache/shop');
        check('a question to a cache belongs to a category', /choose one above/.test(await text(page, '[aria-label=Ask]')), await text(page, '[aria-label=Ask]'));
        await go('map/cache/shop/faq');
        await askMap(page, 'How do I reset my password?');
        check('and without an encoder it has no place', /no place here.*no encoder/.test(await text(page, '[aria-label=Ask]')), await text(page, '[aria-label=Ask]'));
        await resp_.run('DEL', 'large');
    });
    await part('settings of a category', async () => {
        await go('category/shop/faq');
        const before = await resp_.run('SC.CAT.GET', 'shop', 'faq');
        await press(page, 'Change');
        await until(page, () => document.querySelector('dialog[open] form'));
        await accessible(page, 'the form of settings');
        check('the form begins in its first field', (await focused()).includes('both'), await focused());
        const said = () => text(page, 'dialog [role=status]');
        const send = () => page.keyboard.press('Enter');
        const fill = async (name, value) => {
            await page.focus('dialog [name=' + name + ']');
            await page.keyboard.down('Control');
            await page.keyboard.press('a');
            await page.keyboard.up('Control');
            await page.keyboard.type(value);
        };
        await page.focus('dialog [name=ttl]');
        await send();
        await until(page, () => /Nothing is different/.test(document.querySelector('dialog').innerText));
        check('what was not changed is not set', /Nothing is different/.test(await said()), await said());
        await fill('value', '2');
        await send();
        await until(page, () => document.querySelector('dialog .note.bad'));
        check("a wrong budget gets the server's sentence", /RISK is '2'/.test(await said()), await said());
        await fill('value', '0.3');
        await fill('ttl', '7200000');
        await send();
        await until(page, () => /threshold would be|Nothing would be/.test(document.querySelector('dialog').innerText));
        const then = await resp_.run('SC.TUNE', 'shop', 'faq', 'RISK', '0.3');
        check(
            'it says first what would follow',
            (await said()).includes(then.threshold > 1 ? 'Nothing would be' : then.threshold.toFixed(3)) &&
                JSON.stringify(await resp_.run('SC.CAT.GET', 'shop', 'faq')) === JSON.stringify(before),
            await said()
        );
        await send();
        await until(page, () => !document.querySelector('dialog'));
        const after = await resp_.run('SC.CAT.GET', 'shop', 'faq');
        const wanted = {...before, risk: '0.3', ttl: '7200000'};
        check(
            'and then sets what was changed and nothing else',
            JSON.stringify(after) === JSON.stringify(wanted) && /Set: RISK 0.3 TTL 7200000/.test(await text(page)),
            [after, wanted]
        );
        await resp_.run('SC.CAT.SET', 'shop', 'faq', 'RISK', before.risk, 'TTL', before.ttl);
    });
    await part('a narrow page', async () => {
        await page.setViewport({width: 360, height: 700, deviceScaleFactor: 1});
        const shown = () => page.$eval('nav', node => node.getClientRects().length > 0);
        const closed = await shown();
        await page.click('.menu');
        const opened = await shown();
        await page.click('nav a[data-view=tenants]');
        await until(page, () => document.querySelector('h1').textContent === 'Tenants');
        check('a narrow page has its navigation behind a button', !closed && opened && !(await shown()), [
            closed,
            opened
        ]);
    });
    check('hands: no error, no other origin', complaints.length === 0, complaints.join('\n'));
    await page.close();
}

// ---- time ----

// In the page, before it begins: its two seconds pass in so many milliseconds; how often it has waited and asked.
function faster(pause) {
    const real = window.setTimeout,
        asked = window.fetch;
    window.polls = 0;
    window.calls = 0;
    window.setTimeout = (call, ms, ...rest) => real(call, ms === 2000 ? (window.polls++, pause) : ms, ...rest);
    window.fetch = (...what) => (window.calls++, asked(...what));
}

// Two seconds pass in two milliseconds, so that ten minutes are 300 polls. The browser tells nobody what the page asks.
async function polling(base, route) {
    const page = await browser.newPage();
    await page.evaluateOnNewDocument(faster, 2);
    await page.goto(base + '/ui#/' + route, {waitUntil: 'load'});
    await settled(page);
    const client = await page.createCDPSession();
    const once = async () => {
        for (let i = 0; i < 3; i++) await client.send('HeapProfiler.collectGarbage'); // nodes outlive the first by what refers to them
        const m = await page.metrics(),
            rows = await page.evaluate(() => document.querySelectorAll('tr, li, dd').length);
        return {nodes: m.Nodes, rows, listeners: m.JSEventListeners, heap: m.JSHeapUsedSize};
    };
    // The page goes on meanwhile, and a view that is being made stands beside the one before: of five the least.
    const measure = async () => {
        const least = await once();
        for (let i = 0; i < 4; i++) {
            const m = await once();
            for (const name in m) least[name] = Math.min(least[name], m[name]);
        }
        return least;
    };
    const polled = n => until(page, wanted => window.polls >= wanted, n, 120);
    // one node or row that is forgotten in each poll would be 300
    await polled(60); // two minutes: what is kept up to a bound is there
    const before = await measure(),
        done = await polled(360),
        after = await measure();
    check(
        'ten minutes of ' + route + ' make nothing grow',
        done &&
            after.nodes < before.nodes + 250 &&
            after.rows <= before.rows + 15 &&
            after.listeners <= before.listeners + 5 &&
            after.heap < before.heap * 1.15 + 400000,
        {done, before, after}
    );

    await page.evaluate(() => {
        Object.defineProperty(document, 'hidden', {value: true, configurable: true});
        document.dispatchEvent(new Event('visibilitychange'));
    });
    await until(page, () => {
        // what was under way ends
        const [last, now] = [window.seen, window.calls];
        window.seen = now;
        return last === now;
    });
    const calls = await page.evaluate(() => window.calls);
    await new Promise(later => setTimeout(later, 250));
    check('a page that is not seen asks nothing (' + route + ')', (await page.evaluate(() => window.calls)) === calls);
    await page.evaluate(() => {
        delete document.hidden;
        document.dispatchEvent(new Event('visibilitychange'));
    });
    check('and goes on when it is seen', await until(page, was => window.calls > was, calls));
    await page.close();
}

// What the server does behind is on the Sets view while it does it.
async function underWay(base, resp_) {
    // it asks again after 50 ms instead of two seconds, so that a seal of few rows is long enough
    const {page, complaints} = await open(browser, base, {route: 'sets', before: faster, arg: 50});
    await settled(page);
    const {normal} = randoms(5);
    const rows = Array.from({length: 2000}, (_, i) =>
        resp_.run('VADD', 'growing', 'VALUES', 48, ...Array.from({length: 48}, () => normal().toFixed(3)), 'g' + i)
    );
    await Promise.all(rows);
    const sealed = resp_.run('VSEAL', 'growing');
    const seen = await until(
        page,
        () =>
            [...document.querySelectorAll('.figures > div')]
                .find(one => one.querySelector('dt').textContent === 'Under way')
                .querySelector('dd').textContent.includes('sealing'),
        null,
        60
    );
    check('a seal is on the view of sets while it is under way', seen && complaints.length === 0, await text(page));
    await sealed;
    await resp_.run('DEL', 'growing');
    await page.close();
}

// The server goes while one looks, and comes back: the page says so, keeps what it has, and goes on by itself.
async function serverGone(build_, folder_) {
    const one = await server(build_, folder_);
    const door = await gateway(build_, folder_, one.port, ...console_, '--console', '--set', 'server-timeout=2s');
    const {page, complaints} = await open(browser, door.url + '/ui', {expected: [/50[34]/]});
    await settled(page);
    one.child.kill('SIGTERM');
    const said = await until(page, () => !document.getElementById('trouble').hidden);
    check(
        'a server that is gone is said in a sentence',
        said && /server/.test(await text(page, '#trouble')) && /no answer/.test(await text(page, 'header')),
        await text(page)
    );
    check('what was there stays', /Up for|Entries/.test(await text(page)), await text(page));
    await accessible(page, 'without a server');
    await page.keyboard.press('9');
    await until(page, () => document.querySelector('h1').textContent === 'Server');
    check(
        'other views say so, too',
        await until(page, () => !document.getElementById('trouble').hidden),
        await text(page)
    );
    await server(build_, folder_, '--port', String(one.port));
    check(
        'when it is back the page goes on by itself',
        await until(page, () => document.getElementById('trouble').hidden, null, 60),
        await text(page)
    );
    check('a server that comes and goes: no other error', complaints.length === 0, complaints.join('\n'));
    await page.close();
}

// ---- rights ----

// Two near questions, one of them audited and labelled by the model: its tokens are taken off what is saved.
async function judged(serverPort, standPort, resp_) {
    const url = 'http://127.0.0.1:' + standPort;
    const settings = ['embed-url=' + url + '/v1', 'embed-model=stand-in', 'similarity=0.8', 'cache=judged', 'judge=model'];
    settings.push('judge-model=stand-in:say=yes', 'category-settings=AUDIT 1', 'server-timeout=30s', 'embed-timeout=30s');
    const one = await gateway(
        build,
        join(folder, 'judged'),
        serverPort,
        ...console_,
        '--upstream',
        url,
        ...settings.flatMap(setting => ['--set', setting])
    );
    const health = async () => (await fetch(one.url + '/health')).json();
    const asked = async question => {
        const answer = await fetch(one.url + '/v1/chat/completions', {
            method: 'POST',
            headers: {'Content-Type': 'application/json', Authorization: 'Bearer sk-judge'},
            body: JSON.stringify({model: 'stand-in', messages: [{role: 'user', content: question}]})
        });
        await answer.text();
        return answer.headers.get('x-quire-cache');
    };
    const eventually = async right => {
        for (let i = 0; i < 600 && !(await right()); i++) await new Promise(done => setTimeout(done, 100));
    };
    await eventually(async () => (await health()).cache.vectors);
    await asked('be so kind as to accept me');
    await eventually(async () => (await asked('what is the capital of chile')) === 'exact');
    await asked('the capital of chile please');
    await eventually(async () => (await health()).judge.calls === 1);
    const {judge, tokens_saved, tokens_saved_net} = await health();
    const spent = judge.prompt_tokens + judge.completion_tokens;
    const {page, complaints, go} = await open(browser, one.url + '/ui');
    await settled(page);
    const shown = await figure(page, 'Tokens saved');
    const said = text_ => text_.replace(/[^-0-9]+/g, ' ');
    check(
        'tokens saved are shown less what the judge took',
        spent > 0 &&
            tokens_saved_net === tokens_saved - spent &&
            said(shown).trim().startsWith(String(tokens_saved_net)) &&
            shown.includes('less ' + spent + ' of the judge') &&
            complaints.length === 0,
        [shown, tokens_saved, spent, complaints.join()]
    );
    for (const question of ['who was the first man on the moon', 'how tall is the eiffel tower', 'name a river of peru']) await asked(question);
    const kept = async () => (await resp_.run('SC.SAMPLE', 'judged', 'COUNT', 100)).length >= 4;
    await eventually(kept);
    await go('map/cache/judged/default');
    const [{scope}] = await resp_.run('SC.SAMPLE', 'judged', 'COUNT', 1);
    await page.type('[aria-label=Ask] [name=scope]', scope);
    await askMap(page, 'what is the capital of chile');
    check(
        'a question to a cache is drawn, with lines to the nearest of the sample',
        /Asked \(the square\)\nwhat is the capital of chile\nNearest of the sample \(the lines\)\n/.test(await text(page, '[aria-label=Ask]')) && complaints.length === 0,
        (await text(page, '[aria-label=Ask]')) + complaints.join()
    );
    await page.close();
}

async function rights(base, resp_) {
    await resp_.run('SC.CREATE', 'shop', 'DIM', 4);
    await resp_.run('SC.CAT.SET', 'shop', 'faq', 'SIM', '0.9');
    await resp_.run('SC.PUT', 'shop', 'CAT', 'faq', 'HASH', 'h', 'VEC', Buffer.alloc(16, 63), 'TEXT', 'why', 'VALUE', 'so');
    for (let i = 0; i < 4; i++)
        await resp_.run('VADD', 'few', 'VALUES', 2, i, 1, 'e' + i, 'SETATTR', '{"kind":"k"}', 'TENANT', 'acme');
    await resp_.run('ACL', 'SETUSER', 'looker', 'on', '>look only', '~*', '+@read', '-@admin', '+info', '+acl|whoami');
    const {page, complaints, go} = await open(browser, base, {expected: [/401|403/]});
    await until(page, () => document.querySelector('form.login'));
    check('without a credential the page asks for one', (await page.$('form.login')) !== null, await text(page));
    await accessible(page, 'the form to sign in');
    const enter = async secret => {
        await page.$eval('[name=secret]', node => {
            node.value = '';
        });
        await page.type('[name=secret]', secret);
        await page.keyboard.press('Enter');
    };
    await enter('wrong');
    check(
        'a wrong one is refused with a sentence',
        await until(
            page,
            () => document.querySelector('form.login [role=alert]:not([hidden])')?.textContent.length > 10
        ),
        await text(page)
    );
    await enter('right horse');
    check(
        'the right one opens the view',
        await until(page, () => document.querySelector('h1')?.textContent === 'Overview'),
        await text(page)
    );
    await settled(page);
    const kept = await page.evaluate(() => [localStorage.length, sessionStorage.length, document.cookie]);
    check('it is kept nowhere', kept.join() === '0,0,', kept);
    await page.reload();
    await until(page, () => document.querySelector('form.login'));
    await page.type('[name=user]', 'looker');
    await enter('look only');
    await until(page, () => document.querySelector('h1')?.textContent === 'Overview');
    await go('server');
    const server_ = await text(page);
    check(
        "what a user may not ask is the server's sentence, and the rest is there",
        /User looker has no permissions to run the 'slowlog\|get' command/.test(server_) && /Up for/.test(server_),
        server_
    );
    await go('category/shop/faq');
    await page.evaluate(() => document.querySelector('tbody button').click());
    await page.evaluate(() => [...document.querySelectorAll('dialog button')].find(one => one.textContent === 'Pin').click());
    check(
        'a change without the right is refused with a sentence, and changes nothing',
        (await until(page, () => /no permissions to run the 'sc.pin'/.test(document.querySelector('main').innerText))) &&
            !(await resp_.run('SC.TOP', 'shop', 'faq', 1))[0].pinned,
        await text(page)
    );
    await go('map/cache/shop');
    check(
        'questions of all scopes are not for a user who is no administrator',
        /no permissions to run the 'sc.sample'/.test(await text(page, '#trouble')),
        await text(page)
    );
    await go('map/set/few');
    await page.select('[aria-label="Colour by"]', 'tenant (granted to)');
    check(
        'nor whose the elements of a set are; its map is there',
        /no permissions to run the 'vgetgrants'/.test(await text(page, '[aria-label=Map]')) &&
            /4 elements/.test(await text(page, '[aria-label=Map]')),
        await text(page)
    );
    await page.reload();
    check('a reload forgets it', await until(page, () => document.querySelector('form.login')), await text(page));
    check('rights: no other error', complaints.length === 0, complaints.join('\n'));
    await page.close();
}

async function lookingOnly(base) {
    const {page, complaints, go} = await open(browser, base, {route: 'category/shop/faq'});
    await settled(page);
    check(
        'with ui=read settings cannot be changed',
        await page.evaluate(() => [...document.querySelectorAll('main button')].find(one => one.textContent === 'Change').disabled)
    );
    await page.evaluate(() => document.querySelector('tbody button').click());
    const off = await page.$$eval('dialog button', list =>
        list
            .filter(one => one.disabled)
            .map(one => one.textContent)
            .join(' ')
    );
    check(
        'with ui=read the buttons that change something are off',
        /^(Pin|Unpin) Answer is bad Delete$/.test(off),
        off
    );
    await go('labels/shop');
    check(
        'and nothing is taken to be judged',
        /look, but not judge/.test(await text(page)) && complaints.length === 0,
        (await text(page)) + complaints.join()
    );
    await page.close();
}

async function main() {
    sources();
    const starting = launch();
    starting.catch(() => {}); // it is waited for below
    const full = await server(build, join(folder, 'full'));
    const resp_ = await resp(full.port);
    await seedCache(resp_, {name: 'shop'});
    await seedSets(resp_);
    const stand = await model();
    const one = await gateway(
        build,
        join(folder, 'full'),
        full.port,
        ...console_,
        '--upstream',
        'http://127.0.0.1:' + stand.port,
        '--set',
        'log-texts=true'
    );
    await part('requests through the gateway', async () => {
        for (const question of ['hello', 'hello', evil, 'fail with 429']) {
            await (
                await fetch(one.url + '/v1/chat/completions', {
                    method: 'POST',
                    headers: {'Content-Type': 'application/json', Authorization: 'Bearer sk-page'},
                    body: JSON.stringify({model: 'stand-in', messages: [{role: 'user', content: question}]})
                })
            ).text();
        }
    });
    browser = await starting;
    await part('questions in the requests', async () => {
        const {page, complaints} = await open(browser, one.url + '/ui', {route: 'requests'});
        await settled(page);
        const ready = await page.evaluate(() => performance.getEntriesByType('navigation')[0].loadEventEnd);
        console.log('# the page was loaded after ' + Math.round(ready) + ' ms');
        const said = await text(page);
        check(
            'requests show what was asked, as text',
            said.includes('<img src=x onerror') &&
                said.includes('exact') &&
                said.includes('429') &&
                complaints.length === 0,
            said.slice(0, 800) + complaints.join()
        );
        await page.close();
    });
    await delivery(one.url);
    await part('every view', () => everyView(one.url + '/ui'));
    await part('meanings', () => meaningsLead(one.url + '/ui'));
    await figures(one.url + '/ui', resp_);
    await hands(one.url + '/ui', resp_);
    for (const route of ['overview', 'category/shop/faq', 'server'])
        await part('polling', () => polling(one.url, route));

    await part('work behind', () => underWay(one.url + '/ui', resp_));
    await part('a server that goes', () => serverGone(build, join(folder, 'going')));

    await part('what the judge took', () => judged(full.port, stand.port, resp_));

    const bare = await server(build, join(folder, 'bare'));
    const empty = await gateway(build, join(folder, 'bare'), bare.port, ...console_, '--console');
    await nothingThere(empty.url + '/ui');

    const reading = await gateway(build, join(folder, 'reading'), full.port, '--console', '--set', 'ui=read');
    await part('looking only', () => lookingOnly(reading.url + '/ui'));

    const closed = await server(build, join(folder, 'closed'), '--requirepass', 'right horse');
    const guarded = await gateway(build, join(folder, 'closed'), closed.port, ...console_, '--console');
    await part('rights', async () => {
        const asked = await resp(closed.port, 'right horse');
        await rights(guarded.url + '/ui', asked);
        asked.close();
    });
    resp_.close();
}

await part('the programs and the browser', main);
await browser?.close();
await end();
process.exit(failed() ? 1 : 0);
