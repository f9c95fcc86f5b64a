// main.js - the page begins.
'use strict';

shell.start();
