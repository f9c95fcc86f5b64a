// parts.js - what views are made of: cards, figures with a link to their meaning, tables that keep their rows, fields.
'use strict';

const parts = (() => {
	const card = (title, ...rest) => el('section.card', {'aria-label': title}, el('header', el('h2', title)), rest);

	function cardWith(title, note, ...rest) {
		return el(
			'section.card',
			{'aria-label': title},
			el('header', el('h2', title), typeof note === 'string' ? el('p', note) : note),
			rest
		);
	}

	// The name of a figure; where its meaning is written down, a link to it.
	function meant(label, meaning) {
		return meaning ? el('a.mean', {href: '#/meanings/' + meaning, title: 'What this means'}, label) : label;
	}

	// figures([['hits', 'Hit rate', 'hit-rate'], ...]) -> node with set('hits', '12.0 %', 'of 200 requests', 'good')
	function figures(list) {
		const slots = new Map();
		const node = el(
			'dl.figures',
			list.map(([name, label, meaning]) => {
				const value = el('span', format.missing),
					unit = el('span.unit'),
					note = el('dd.aside');
				const dd = el('dd.value', value, unit);
				slots.set(name, {value, unit, note, dd});
				return el('div', el('dt', meant(label, meaning)), dd, note);
			})
		);
		node.set = (name, shown, note, tone) => {
			const slot = slots.get(name);
			const [value, unit] = format.apart(shown);
			dom.text(slot.value, value);
			dom.text(slot.unit, unit);
			if (note !== undefined) dom.text(slot.note, note);
			slot.dd.className = 'value' + (tone ? ' ' + tone : '');
		};
		node.hide = (name, yes) => (slots.get(name).dd.parentElement.hidden = yes);
		// The same of several that come of one part.
		node.take = (part, names, show) => {
			const no = refusal(part);
			if (no) for (const name of names) node.set(name, format.missing, no);
			else show(part);
		};
		return node;
	}

	// The server's sentence where it refused a part of an answer; null: the part is there.
	const refusal = part => (part && !part.error ? null : part?.error?.message || 'The server did not say.');

	// The place of a part: what shows it, or the sentence. take(part, show) calls show(part) where it is there.
	function told(...nodes) {
		const said = el('p.note', {hidden: true}),
			place = [said, ...nodes];
		place.take = (part, show) => {
			const no = refusal(part);
			said.hidden = !no;
			for (const node of nodes) node.hidden = !!no;
			if (no) dom.text(said, no);
			else show(part);
		};
		return place;
	}

	// Pairs of a name and a value; a value may be a node.
	function pairs(list) {
		return el(
			'dl.pairs',
			list.filter(Boolean).map(([label, value, meaning]) => [el('dt', meant(label, meaning)), el('dd', value)])
		);
	}

	// table({caption, columns: [{name, title, num, meaning, cell(row), sort(row)}], key(row), empty}) -> node with set(rows).
	// A row that says the same stays as it is; the focus within a row that changes stays in its column.
	function table(what) {
		const {caption, columns, key, empty} = what;
		let rows = [],
			order = null,
			falling = true;
		const kept = new Map();
		const body = el('tbody');
		const heads = columns.map(column => {
			const kind = 'th' + (column.num ? '.num' : '');
			if (!column.sort) return el(kind, {scope: 'col'}, meant(column.title, column.meaning));
			return el(
				kind,
				{scope: 'col'},
				el('button', {type: 'button', title: 'Sort', onclick: () => sortBy(column)}, column.title),
				column.meaning
					? el(
							'a.mean',
							{href: '#/meanings/' + column.meaning, 'aria-label': 'What ' + column.title + ' means'},
							'?'
						)
					: null
			);
		});
		const grid = el(
			'div.scroll',
			{tabIndex: 0, role: 'region', 'aria-label': caption},
			el('table', el('caption.only-read', caption), el('thead', el('tr', heads)), body)
		);
		const none = el('div.empty');
		dom.fill(none, empty || 'Nothing yet.');
		const node = el('div', grid, none);

		function sortBy(column) {
			falling = order === column ? !falling : true;
			order = column;
			draw();
		}

		function fillRow(tr, row) {
			const at = [...tr.children].findIndex(cell => cell.contains(document.activeElement));
			dom.fill(
				tr,
				columns.map((column, i) => {
					const kind = column.num ? '.num' : column.kind ? '.' + column.kind : '';
					const shown = column.cell(row);
					return i === 0 && column.head !== false
						? el('th' + kind, {scope: 'row'}, shown)
						: el('td' + kind, shown);
				})
			);
			if (at >= 0) tr.children[at].querySelector('a, button, input')?.focus();
		}

		function draw() {
			let shown = rows;
			if (order) {
				const value = order.sort;
				shown = [...rows].sort((a, b) => {
					const x = value(a),
						y = value(b);
					return (x < y ? -1 : x > y ? 1 : 0) * (falling ? -1 : 1);
				});
			}
			heads.forEach((head, i) =>
				head.setAttribute('aria-sort', columns[i] !== order ? 'none' : falling ? 'descending' : 'ascending')
			);
			const now = new Set();
			shown.forEach((row, i) => {
				const id = String(key ? key(row) : i),
					says = new Date().toDateString() + JSON.stringify(row); // a clock shows the date of another day
				now.add(id);
				let old = kept.get(id);
				if (!old) kept.set(id, (old = {tr: el('tr'), says: null}));
				if (old.says !== says) {
					fillRow(old.tr, row);
					old.says = says;
				}
				if (body.children[i] !== old.tr) body.insertBefore(old.tr, body.children[i] || null);
			});
			for (const [id, old] of kept)
				if (!now.has(id)) {
					old.tr.remove();
					kept.delete(id);
				}
			grid.hidden = rows.length === 0;
			none.hidden = rows.length !== 0;
		}

		node.set = list => {
			rows = list;
			draw();
		};
		draw();
		return node;
	}

	function field(label, input, hint) {
		return el('label.field', el('span', label), input, hint ? el('small', hint) : null);
	}

	function select(options, value, change) {
		const node = el(
			'select',
			{onchange: () => change(node.value)},
			options.map(option => {
				const [name, label] = Array.isArray(option) ? option : [option, option];
				return el('option', {value: name, selected: name === value}, label);
			})
		);
		return node;
	}

	// Buttons of which one is pressed.
	function choice(label, options, value, change) {
		const buttons = options.map(([name, text]) =>
			el(
				'button.slim',
				{
					type: 'button',
					'aria-pressed': String(name === value),
					onclick: () => {
						buttons.forEach((button, i) =>
							button.setAttribute('aria-pressed', String(options[i][0] === name))
						);
						change(name);
					}
				},
				text
			)
		);
		return el('div.seg', {role: 'group', 'aria-label': label}, buttons);
	}

	// Of the curve of SC.TUNE, in any order: what the threshold would serve, and how often wrongly.
	const pointAt = (points, threshold) =>
		points
			.filter(([s]) => s >= threshold - 1e-6)
			.reduce((best, one) => (!best || one[0] < best[0] ? one : best), null);

	// The begin of a long name without blanks, such as a hash; the whole of it for who points at it.
	const brief = name =>
		!name ? format.missing : name.length <= 18 ? name : el('span', {title: name}, name.slice(0, 12) + '…');

	const chip = (text, tone) => el('span.chip' + (tone ? '.' + tone : ''), text);
	const note = (text, tone) =>
		el('p.note' + (tone ? '.' + tone : ''), {role: tone === 'bad' ? 'alert' : 'status'}, text);

	// What to do first, with the command that does it.
	function empty(title, text, command) {
		return el('div.empty', el('strong', title), text ? el('p', text) : null, command ? el('pre', command) : null);
	}

	// meter([[share, 'k1'], ...], 'what it says')
	function meter(shares, label) {
		return el(
			'div.meter',
			{role: 'img', 'aria-label': label, title: label},
			shares.map(([part, kind]) =>
				el('i.' + kind, {style: 'width: ' + Math.max(0, Math.min(1, part || 0)) * 100 + '%'})
			)
		);
	}

	// It gives the focus back by itself when it closes.
	function dialog(label, ...inner) {
		const box = el('dialog', {'aria-label': label}, el('div', inner));
		box.addEventListener('close', () => box.remove());
		document.body.append(box);
		box.showModal();
		return box;
	}

	// Asks before something that cannot be undone.
	function confirm(question, action, then) {
		const box = dialog(
			question,
			el('p', question),
			el(
				'div.row',
				el('button', {type: 'button', onclick: () => box.close()}, 'Leave it'),
				el(
					'button.danger',
					{
						type: 'button',
						onclick: () => {
							box.close();
							then();
						}
					},
					action
				)
			)
		);
	}

	return {
		card,
		cardWith,
		meant,
		figures,
		refusal,
		told,
		pairs,
		table,
		field,
		select,
		choice,
		pointAt,
		brief,
		chip,
		note,
		empty,
		meter,
		dialog,
		confirm
	};
})();
