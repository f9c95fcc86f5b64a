// format.js - figures as people read them: always with a unit, never with digits that mean nothing.
'use strict';

const format = (() => {
	const missing = '–';
	const known = value => typeof value === 'number' && Number.isFinite(value);
	const grouped = new Intl.NumberFormat('en', {maximumFractionDigits: 0});

	function count(value) {
		if (!known(value)) return missing;
		if (Math.abs(value) < 100000) return Number.isInteger(value) ? grouped.format(value) : digits(value);
		return scaled(value, ['', 'k', 'M', 'G', 'T'], 1000).join('');
	}

	function digits(value) {
		const size = Math.abs(value);
		if (size === 0) return '0';
		return size >= 100
			? grouped.format(value)
			: size >= 10
				? value.toFixed(1)
				: size >= 1
					? value.toFixed(2)
					: size >= 0.01
						? value.toFixed(3)
						: value.toPrecision(2);
	}

	function scaled(value, units, step) {
		let unit = 0;
		while (Math.abs(value) >= step && unit < units.length - 1) {
			value /= step;
			unit++;
		}
		const shown = Math.abs(value) >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
		return [shown, units[unit]];
	}

	const bytes = value => (known(value) ? scaled(value, ['B', 'KiB', 'MiB', 'GiB', 'TiB'], 1024).join(' ') : missing);
	const share = value =>
		!known(value) ? missing : (value * 100).toFixed(value !== 0 && Math.abs(value) < 0.1 ? 2 : 1) + ' %';
	const similarity = value => (!known(value) || value < 0 ? missing : value > 1.005 ? 'none' : value.toFixed(3));
	const dollars = value =>
		!known(value)
			? missing
			: '$' + (value >= 1000 ? grouped.format(value) : value.toFixed(value >= 1 || value === 0 ? 2 : 4));
	const rate = value => (known(value) ? digits(value) : missing);

	function micros(value) {
		if (!known(value)) return missing;
		return value < 1000 ? digits(value) + ' µs' : millis(value / 1000);
	}

	function millis(value) {
		if (!known(value)) return missing;
		if (value === 0) return '0 ms';
		if (value < 1) return digits(value * 1000) + ' µs';
		if (value < 1000) return digits(value) + ' ms';
		return duration(value);
	}

	function duration(ms) {
		if (!known(ms)) return missing;
		const s = ms / 1000;
		if (s < 60) return (s < 10 ? s.toFixed(1) : s.toFixed(0)) + ' s';
		if (s < 3600) return Math.floor(s / 60) + ' min ' + Math.floor(s % 60) + ' s';
		if (s < 86400) return Math.floor(s / 3600) + ' h ' + Math.floor((s % 3600) / 60) + ' min';
		return Math.floor(s / 86400) + ' d ' + Math.floor((s % 86400) / 3600) + ' h';
	}

	function clock(ms) {
		if (!known(ms)) return missing;
		const two = n => String(n).padStart(2, '0');
		const at = new Date(ms);
		const time = two(at.getHours()) + ':' + two(at.getMinutes()) + ':' + two(at.getSeconds());
		if (at.toDateString() === new Date().toDateString()) return time;
		return at.getFullYear() + '-' + two(at.getMonth() + 1) + '-' + two(at.getDate()) + ' ' + time;
	}

	// Splits "1.2 MiB" for a large figure with a small unit.
	function apart(shown) {
		const at = shown.indexOf(' ');
		return at < 0 || shown.indexOf(' ', at + 1) >= 0 ? [shown, ''] : [shown.slice(0, at), shown.slice(at + 1)];
	}

	return {
		count,
		bytes,
		share,
		similarity,
		dollars,
		rate,
		micros,
		millis,
		duration,
		clock,
		apart,
		digits,
		missing,
		known
	};
})();
