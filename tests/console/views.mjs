// views.mjs - the views, and how each is brought into the state that tests and screenshots look at.
import {until} from './browser.mjs';

const press = (page, words) =>
    page.evaluate(
        wanted =>
            [...document.querySelectorAll('main button')]
                .find(one => one.textContent.trim().startsWith(wanted))
                .click(),
        words
    );

async function askSet(page, set, query) {
    await press(page, 'A vector set');
    await until(page, () => document.querySelector('[name=query]'));
    await page.$eval(
        'main form select',
        (node, value) => {
            node.value = value;
            node.dispatchEvent(new Event('change'));
        },
        set
    );
    await page.type('[name=query]', query);
    await press(page, 'Search');
    await until(page, () => document.querySelector('main').innerText.includes('What the search did'));
}

async function askCache(page, {cache, category, text, scope}) {
    await press(page, 'A cache');
    await until(
        page,
        () => document.querySelector('[name=text]') && document.querySelectorAll('main form select option').length
    );
    const choose = (label, value) =>
        page.evaluate(
            (name, wanted) => {
                const node = [...document.querySelectorAll('main form label')]
                    .find(one => one.textContent.startsWith(name))
                    ?.querySelector('select');
                if (!node || node.value === wanted) return;
                node.value = wanted;
                node.dispatchEvent(new Event('change'));
            },
            label,
            value
        );
    await choose('Cache', cache);
    await until(
        page,
        wanted => [...document.querySelectorAll('main form select option')].some(one => one.value === wanted),
        category
    );
    await choose('Category', category);
    await page.$eval('[name=text]', node => {
        node.value = '';
    });
    await page.$eval('[name=scope]', node => {
        node.value = '';
    });
    await page.type('[name=text]', text);
    if (scope) await page.type('[name=scope]', scope);
    await press(page, 'Ask');
    await until(page, () => document.querySelector('main').innerText.includes('What would have to change'));
}

async function choosePoint(page) {
    await page.focus('canvas.map');
    await page.keyboard.press('ArrowRight');
    await until(page, () => document.querySelector('main').innerText.includes('Nearest of the sample'));
}

// [name, route, what to do there]; shop is the cache and items the set of seed.mjs.
export const views = [
    ['overview', 'overview'],
    ['categories', 'categories/shop'],
    [
        'category',
        'category/shop/faq',
        async page => {
            await page.$eval('input[type=range]', node => {
                node.value = '-0.8';
                node.dispatchEvent(new Event('input'));
            });
            await until(page, () => document.querySelector('output').innerText.includes('With a budget of'));
        }
    ],
    ['labels', 'labels/shop'],
    ['playground', 'playground', page => askSet(page, 'items', 'item:7')],
    ['requests', 'requests'],
    ['tenants', 'tenants/shop'],
    [
        'sets',
        'sets/items',
        async page => {
            await press(page, 'Measure now');
            await until(page, () => document.querySelector('main').innerText.includes('Effort 320'));
        }
    ],
    ['server', 'server'],
    [
        'map',
        'map/set/items',
        async page => {
            await choosePoint(page);
            await askMap(page, 'item:7');
        }
    ],
    ['map-cache', 'map/cache/shop', choosePoint],
    ['map-tenants', 'map/set/docs', choosePoint],
    ['docs', 'docs/cache.md/terms'],
    ['meanings', 'meanings/threshold']
];

// Asks in the map, and waits for the square.
async function askMap(page, words) {
    await page.$eval(
        '[aria-label=Ask] [name=query]',
        (node, value) => {
            node.value = value;
        },
        words
    );
    await press(page, 'Show it');
    await until(page, () => /Asked \(the square\)|no place here/.test(document.querySelector('[aria-label=Ask]').innerText));
}

export {askSet, askCache, askMap, press};
