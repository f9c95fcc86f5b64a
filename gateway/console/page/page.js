'use strict';
for (const name of ['me', 'overview', 'history', 'requests', 'caches', 'tenants', 'sets', 'server']) {
  const item = document.createElement('li');
  const link = document.createElement('a');
  link.href = '/ui/api/' + name;
  link.textContent = link.pathname;
  item.append(link);
  document.getElementById('endpoints').append(item);
}
