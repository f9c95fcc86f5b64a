/*
 * top_screen.c - termios, the other screen, and signals that must not leave a terminal without echo.
 *
 * What the handlers need lies in static memory that is written before they are set. They call write, tcsetattr and
 * _exit only, which POSIX allows in handlers. Keys that raise signals (^C, ^Z, ^\) still do; ^S does not stop the
 * output, or a view that nobody reads would hang in a write.
 */
#include "tools/top/top_screen.h"
#include "io/error.h"
#include "tools/top/top_canvas.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static const char enter_codes[] = "\033[?1049h\033[?25l\033[2J";
static const char leave_codes[] = "\033[0m\033[?25h\033[?1049l";

static volatile sig_atomic_t entered;
static volatile sig_atomic_t has_keys; /* `before` is standard input's */
static struct termios before;

bool top_screen_possible(void)
{
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

void top_screen_leave(void)
{
    if (!entered)
        return;
    entered = 0;
    if (has_keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    ssize_t n = write(STDOUT_FILENO, leave_codes, sizeof leave_codes - 1);
    (void)n; /* a terminal that is gone needs nothing */
}

static void on_end(int number)
{
    top_screen_leave();
    _exit(128 + number);
}

static void on_fault(int number)
{
    top_screen_leave();
    signal(number, SIG_DFL);
    raise(number); /* takes effect when the handler returns */
}

static void catch_all(const int *numbers, size_t n, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler}, old;
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < n; i++)
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) /* nohup stays in force */
            sigaction(numbers[i], &action, NULL);
}

void top_screen_catch(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    catch_all(ends, sizeof ends / sizeof *ends, on_end);
    catch_all(faults, sizeof faults / sizeof *faults, on_fault);
}

int top_screen_enter(struct quire_error *err)
{
    if (!entered) /* else `before` is what was before the first time */
        has_keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &before) == 0;
    if (has_keys) {
        struct termios raw = before;
        raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
        raw.c_iflag &= (tcflag_t) ~(IXON | ICRNL);
        raw.c_cc[VMIN] = 1;
        raw.c_cc[VTIME] = 0;
        entered = 1; /* from here on there is something to give back */
        if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) < 0) {
            int errnum = errno;
            top_screen_leave();
            return error_set_errno(err, errnum, "set up", "the terminal");
        }
    }
    entered = 1;
    if (write(STDOUT_FILENO, enter_codes, sizeof enter_codes - 1) == (ssize_t)(sizeof enter_codes - 1))
        return 0;
    int errnum = errno;
    top_screen_leave();
    return error_set_errno(err, errnum, "write to", "the terminal");
}

/* COLUMNS and LINES are what a shell has set once; the terminal knows better. */
void top_screen_size(uint32_t *width, uint32_t *height)
{
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0 || size.ws_row == 0)
        size = (struct winsize){.ws_col = 80, .ws_row = 24};
    *width = size.ws_col < TOP_CANVAS_WIDTH_MAX ? size.ws_col : TOP_CANVAS_WIDTH_MAX;
    *height = size.ws_row;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

/* ESC [ A and ESC O A, ESC [ 5 ~. */
static int sequence(const struct top_keys *keys)
{
    static const struct {
        const char *bytes;
        enum top_key key;
    } known[] = {{"[A", TOP_KEY_UP},   {"OA", TOP_KEY_UP},       {"[B", TOP_KEY_DOWN},
                 {"OB", TOP_KEY_DOWN}, {"[5~", TOP_KEY_PAGE_UP}, {"[6~", TOP_KEY_PAGE_DOWN}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].bytes) == keys->n - 1 && memcmp(known[i].bytes, keys->bytes + 1, keys->n - 1) == 0)
            return (int)known[i].key;
    return TOP_KEY_NONE;
}

int top_screen_key(struct top_keys *keys, char byte)
{
    if (keys->n == 0 && byte != '\033')
        return (unsigned char)byte;
    if (byte == '\033' || (keys->n == 1 && byte != '[' && byte != 'O')) {
        /* an escape of its own means nothing; what follows it is a key */
        keys->n = byte == '\033';
        keys->bytes[0] = '\033';
        return byte == '\033' ? TOP_KEY_NONE : (unsigned char)byte;
    }
    keys->bytes[keys->n++] = byte;
    /* a sequence ends with its first byte from '@' on, behind "ESC [" or "ESC O" */
    bool over = (keys->n > 2 && byte >= '@') || keys->n == sizeof keys->bytes;
    int key = over ? sequence(keys) : TOP_KEY_NONE;
    keys->n = over ? 0 : keys->n;
    return key;
}
