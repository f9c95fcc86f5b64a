/*
 * top_screen.h - the terminal: taken, asked for its size and its keys, and given back as it was.
 *
 * One at a time in a process, since signal handlers have to know it. It is given back by top_screen_leave, and by every
 * signal that ends the process: those of users (SIGINT and the like) while they are not blocked, those of faults
 * always.
 */
#ifndef QUIRE_TOOLS_TOP_SCREEN_H
#define QUIRE_TOOLS_TOP_SCREEN_H

#include "quire.h"

enum top_key {
    TOP_KEY_NONE,
    TOP_KEY_UP = 256, /* below: the character itself */
    TOP_KEY_DOWN,
    TOP_KEY_PAGE_UP,
    TOP_KEY_PAGE_DOWN
};

/* Bytes of keys on their way to keys: a key may take several, which may come in parts. */
struct top_keys {
    unsigned n;
    char bytes[8];
};

/* Whether a live view is possible: standard output is a terminal that knows escape codes. */
bool top_screen_possible(void);
/* Another screen than the shell's, no cursor, and keys one by one without echo where standard input is a terminal.
 * May be called again while it is entered: a shell may have set its own modes meanwhile. */
int top_screen_enter(struct quire_error *err);
/* The terminal as it was; nothing where it was not entered. */
void top_screen_leave(void);
/* Handlers that give the terminal back and end the process by 128 + the number, for SIGINT, SIGTERM, SIGHUP, SIGQUIT,
 * where these are not ignored; and for faults. For views without a screen, too. */
void top_screen_catch(void);
void top_screen_size(uint32_t *width, uint32_t *height);
/* The next byte of standard input into the keys that wait: a key (a character or enum top_key), or TOP_KEY_NONE while
 * it is not whole. */
int top_screen_key(struct top_keys *keys, char byte);

#endif
