// past.js - the gateway's points of the last 10 minutes and 24 hours, asked for bit by bit and kept while the page is
// open: at most as many as the gateway keeps.
'use strict';

const past = (() => {
	const kept = {'1s': {points: [], fields: [], most: 600}, '1m': {points: [], fields: [], most: 1440}};

	async function read(scope, resolution) {
		const own = kept[resolution],
			last = own.points.at(-1);
		const said = await scope.get('history', {resolution, since: last ? last[0] : null});
		if (said.fields.join() !== own.fields.join()) Object.assign(own, {fields: said.fields, points: []});
		const begin = own.points.at(-1)?.[0] ?? -1;
		own.points.push(...said.points.filter(point => point[0] > begin));
		own.points.splice(0, own.points.length - own.most);
		own.step_s = said.resolution_ms / 1000;
		return said.now_ms;
	}

	const place = (resolution, name) => kept[resolution].fields.indexOf(name);

	function column(resolution, name, change = value => value) {
		const at = place(resolution, name);
		return kept[resolution].points.map(point => (at < 0 || point[at] === null ? null : change(point[at])));
	}

	const seconds = resolution => kept[resolution].points.map(point => point[0] / 1000);

	// Adds increments of fields up since a time: of whole minutes, and of the seconds after them where seconds are asked for.
	function sum(names, since_ms) {
		const out = Object.fromEntries(names.map(name => [name, 0]));
		const minutes = kept['1m'].points,
			whole = since_ms < (kept['1s'].points[0]?.[0] ?? Infinity);
		const from = whole ? (minutes.at(-1)?.[0] ?? 0) : since_ms;
		const add = (resolution, begin) => {
			for (const point of kept[resolution].points)
				if (point[0] > begin) for (const name of names) out[name] += point[place(resolution, name)] || 0;
		};
		if (whole) add('1m', since_ms);
		add('1s', from);
		return out;
	}

	return {read, column, seconds, sum, step: resolution => kept[resolution].step_s};
})();
