// shell.js - the frame: navigation, route, theme, keys, sign-in, the clock that polls while the page is seen.
'use strict';

const shell = (() => {
	const views = [];
	const poll_ms = 2000;
	let scope = null,
		about = null,
		state = {},
		sideDot,
		sideText,
		sideUser,
		main,
		side,
		paused = false,
		caches = [];

	// What a view has opened ends with it: listeners, requests, timers, charts.
	function newScope() {
		const ending = new AbortController();
		const ends = [],
			inner = new Set();
		let timer = null,
			running = false,
			fresh = false,
			tasks = [];

		async function tick(anew) {
			fresh ||= anew === true; // of one that is under way the next
			clearTimeout(timer);
			timer = null;
			if (ending.signal.aborted || running || document.hidden || !tasks.length) return;
			running = true;
			try {
				const whole = fresh;
				fresh = false;
				for (const task of tasks) await task(whole);
				if (!ending.signal.aborted) healthy(true);
			} catch (error) {
				if (!ending.signal.aborted) failed(error);
			}
			running = false;
			if (ending.signal.aborted) return;
			main.dataset.ready = 'yes';
			if (!document.hidden && !paused) timer = setTimeout(() => tick(), poll_ms);
		}

		return {
			signal: ending.signal,
			on: (target, type, call) => target.addEventListener(type, call, {signal: ending.signal}),
			end: call => ends.push(call),
			// What may end before it: {on, end, close}.
			part() {
				const own = new AbortController(),
					calls = [];
				const close = () => {
					inner.delete(close);
					own.abort();
					calls.splice(0).forEach(call => call());
				};
				inner.add(close);
				return {
					on: (target, type, call) => target.addEventListener(type, call, {signal: own.signal}),
					end: call => calls.push(call),
					close
				};
			},
			polls: () => tasks.length > 0,
			// Runs now and every two seconds while the page is seen; one at a time. Its argument is true where one has asked
			// for all of it anew.
			poll(task) {
				tasks.push(task);
				return tick();
			},
			tick,
			get: (name, query) => api.get(name, query, ending.signal),
			post: (name, body) => api.post(name, body, ending.signal),
			doc: name => api.doc(name, ending.signal),
			close() {
				ending.abort();
				clearTimeout(timer);
				inner.forEach(call => call());
				ends.forEach(call => call());
				tasks = [];
			}
		};
	}

	function healthy(well, text) {
		const polls = scope.polls();
		sideDot.className = 'dot ' + (!well ? 'bad' : !polls ? 'good' : paused ? 'warn' : 'good beat');
		dom.text(sideText, text || (!polls ? 'not polled' : paused ? 'paused (p goes on)' : 'live, every 2 s'));
		if (well) document.getElementById('trouble').hidden = true;
	}

	function failed(error) {
		if (error.name === 'AbortError') return;
		if (error.status === 401) return signIn(error);
		healthy(false, 'no answer');
		const box = document.getElementById('trouble');
		box.hidden = false;
		dom.text(box, error.message);
		if (!(error instanceof ApiError)) reportError(error); // a fault of the page, for the browser's log
	}

	function signIn(error) {
		if (main.querySelector('.login')) return;
		scope?.close();
		scope = newScope();
		about = null;
		dom.text(sideUser, '');
		healthy(false, 'signed out');
		const user = el('input', {type: 'text', name: 'user', autocomplete: 'off', spellcheck: false});
		const secret = el('input', {type: 'password', name: 'secret', autocomplete: 'off', required: true});
		const userField = parts.field('User', user);
		const said = el('p.note.bad', {role: 'alert', hidden: !api.signedIn()}, api.signedIn() ? error.message : '');
		let bearer = false;
		const form = el(
			'form.card.login',
			{
				onsubmit: event => {
					event.preventDefault();
					api.signIn(bearer ? null : user.value || 'default', secret.value);
					about = null;
					route();
				}
			},
			el('h1', {tabIndex: -1}, 'Sign in'),
			el(
				'p.muted',
				"A user of the quire-server (ACL). What you type stays in this page's memory until you reload it."
			),
			said,
			parts.choice(
				'Kind of credential',
				[
					['basic', 'User and password'],
					['bearer', 'Bearer token']
				],
				'basic',
				kind => {
					bearer = kind === 'bearer';
					userField.hidden = bearer;
					dom.text(secretLabel, bearer ? 'Token' : 'Password');
					(bearer ? secret : user).focus();
				}
			),
			userField,
			parts.field('Password', secret),
			el('button.main', {type: 'submit'}, 'Sign in')
		);
		const secretLabel = secret.parentElement.firstChild;
		api.signOut();
		dom.fill(main, form);
		user.focus();
	}

	const parse = () =>
		location.hash
			.replace(/^#\/?/, '')
			.split('/')
			.filter(Boolean)
			.map(word => {
				try {
					return decodeURIComponent(word);
				} catch {
					return word;
				}
			});
	const link = (...words) => '#/' + words.map(encodeURIComponent).join('/');

	async function route(first) {
		const words = parse();
		const view = views.find(one => one.id === words[0]) || views.find(one => one.key === '1');
		api.begin(first ? ['me', ...(view.early || [])] : []);
		scope?.close();
		scope = newScope();
		side.classList.remove('open');
		side.querySelector('.menu').setAttribute('aria-expanded', 'false');
		for (const a of side.querySelectorAll('nav a')) {
			if (a.dataset.view === (view.under || view.id)) a.setAttribute('aria-current', 'page');
			else a.removeAttribute('aria-current');
		}
		document.title = view.title + ' · Quire';
		const trouble = el('p.note.bad', {id: 'trouble', role: 'alert', hidden: true});
		const h1 = el('h1', {tabIndex: -1}, view.title);
		const pick = el('div.pick'),
			lead = el('p.lead', view.lead),
			body = el('div.stack');
		dom.fill(main, el('div.head', el('div', h1, lead), pick), trouble, body);
		if (!first) {
			scrollTo(0, 0);
			h1.focus({preventScroll: true});
		}
		main.dataset.ready = 'no';
		const mine = scope;
		try {
			if (!about) {
				about = await scope.get('me');
				if (mine.signal.aborted) return;
				showUser();
			}
			await view.open({scope, args: words.slice(1), h1, lead, pick, body, state: (state[view.id] ||= {})});
			if (!mine.signal.aborted && !mine.polls() && trouble.hidden) healthy(true);
		} catch (error) {
			if (!mine.signal.aborted) failed(error);
		}
		if (!mine.signal.aborted) main.dataset.ready = 'yes';
	}

	// Leads to an element of the view, where there is such.
	function show(id) {
		const node = id && document.getElementById(id);
		if (!node) return;
		node.classList.add('strong');
		node.scrollIntoView({block: 'center'});
		node.focus({preventScroll: true});
	}

	// What this user may change: pin, delete, feedback, settings, labels. What is not known may be tried.
	const may = what => about.write && about.may[what] !== false;

	function showUser() {
		const not = Object.keys(about.may).filter(what => !may(what));
		dom.text(
			sideUser,
			about.user + (!about.write ? ', read only' : not.length ? ', may not: ' + not.join(', ') : '')
		);
	}

	// A change was refused: where the user may not run the command, or nobody may, it is not offered again.
	function refused(what, error) {
		if (error.status !== 403 || !/ to run the |ui is read/.test(error.message)) return;
		about.may[what] = false;
		about.write = Object.values(about.may).some(one => one !== false);
		showUser();
	}

	// The cache that a view is about: of the route, or the first there is. A select to choose another where there are several.
	async function cacheOf(view, id) {
		const known = await view.scope.get('caches');
		caches = known.caches.map(one => one.name);
		const name = caches.includes(view.args[0])
			? view.args[0]
			: caches.includes(state.cache)
				? state.cache
				: caches.includes(about.cache)
					? about.cache
					: caches[0];
		if (name) state.cache = name;
		if (caches.length > 1) {
			view.pick.prepend(
				parts.field(
					'Cache',
					parts.select(caches, name, other => {
						location.hash = link(id, other);
					})
				)
			);
		}
		return name ?? null;
	}

	const noCache = () =>
		parts.empty(
			'There is no cache yet.',
			'A gateway makes one at its first start with an upstream; you can make one by hand, too. 256 is the dimension of your vectors.',
			'quire-gateway --upstream http://127.0.0.1:8000 --listen 127.0.0.1:8080\n\nredis-cli SC.CREATE llm DIM 256\nredis-cli SC.CAT.SET llm faq RISK 0.02'
		);

	function theme(value) {
		const dark = value ? value === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
		document.documentElement.dataset.theme = dark ? 'dark' : 'light';
		const button = document.getElementById('theme');
		if (button) dom.text(button, dark ? 'Light' : 'Dark');
		document.dispatchEvent(new Event('theme'));
	}
	const switchTheme = () => theme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark');

	function help() {
		const rows = [
			...views.filter(one => one.key).map(one => [one.key, one.title]),
			['/', 'first field of the view'],
			['r', 'ask again now'],
			['p', 'stop or go on asking every 2 s'],
			['t', 'light or dark'],
			['?', 'this list'],
			['G  B', 'Labels: good, bad'],
			['J', 'Labels: show what the cache would have said'],
			['S', 'Labels: later'],
			['Esc', 'close']
		];
		const box = parts.dialog(
			'Keys',
			el('h2', 'Keys'),
			el(
				'dl.pairs',
				rows.map(([key, what]) => [
					el(
						'dt',
						key.split(/ +/).map(one => [el('kbd', one), ' '])
					),
					el('dd', what)
				])
			),
			el('button', {type: 'button', onclick: () => box.close()}, 'Close')
		);
	}

	function onKey(event) {
		if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
		if (event.target.closest('input, textarea, select')) {
			if (event.key === 'Escape') event.target.blur();
			return;
		}
		const view = views.find(one => one.key === event.key);
		if (view) location.hash = link(view.id);
		else if (event.key === '?') help();
		else if (event.key === 't') switchTheme();
		else if (event.key === 'r') scope.polls() ? scope.tick(true) : route();
		else if (event.key === 'p') {
			paused = !paused;
			healthy(true);
			scope.tick();
		} else if (event.key === '/') main.querySelector('input, textarea, select')?.focus();
		else return;
		event.preventDefault();
	}

	function start() {
		sideDot = el('span.dot');
		sideText = el('span', 'begins');
		sideUser = el('span', '');
		main = el('main', {id: 'main', tabIndex: -1});
		const menu = el(
			'button.menu.slim',
			{
				type: 'button',
				'aria-expanded': 'false',
				onclick: () => menu.setAttribute('aria-expanded', String(side.classList.toggle('open')))
			},
			'Menu'
		);
		side = el(
			'header.side',
			el('div.bar', el('div.brand', 'Quire', el('small', 'console')), menu),
			el(
				'nav',
				{'aria-label': 'Views'},
				el(
					'ul',
					views
						.filter(one => one.key && !one.under)
						.map(one => {
							const a = el(
								'a',
								{href: link(one.id), 'aria-keyshortcuts': one.key},
								one.title,
								el('kbd', {'aria-hidden': 'true'}, one.key)
							);
							a.dataset.view = one.id;
							return el('li', a);
						})
				)
			),
			el(
				'div.side-end',
				el('span.live', {role: 'status'}, sideDot, sideText),
				sideUser,
				el(
					'div.row',
					el(
						'button.slim',
						{type: 'button', id: 'theme', title: 'Switch between light and dark (t)', onclick: switchTheme},
						'Dark'
					),
					el('button.slim', {type: 'button', title: 'Keys (?)', onclick: help}, 'Keys'),
					el('a.button.slim', {href: '#/meanings'}, 'Meanings')
				)
			)
		);
		dom.fill(document.getElementById('app'), side, main);
		theme();
		matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => theme());
		addEventListener('hashchange', () => route());
		addEventListener('keydown', onKey);
		document.addEventListener('visibilitychange', () => scope.tick());
		document.querySelector('.skip').addEventListener('click', event => {
			event.preventDefault();
			main.focus();
		});
		route(true);
	}

	return {
		view: one => views.push(one),
		start,
		link,
		cacheOf,
		noCache,
		route,
		failed,
		show,
		may,
		refused,
		me: () => about,
		keep: (id, values) => {
			state[id] = {...state[id], ...values};
		},
		go: (...words) => {
			location.hash = link(...words);
		}
	};
})();
