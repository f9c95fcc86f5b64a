/*
 * top_run.c - one thread, one poll: the connection, the keys, the signals, the clock.
 *
 * Signals are blocked and read from a descriptor, so that the usual end runs through top_run's own exit. They are
 * unblocked only around what may block, a host's name and a write to a terminal or pipe that takes nothing: there the
 * handlers of top_screen.c end the process, with the same status.
 *
 * The first INFO must come, or the address is wrong and the user should know at once; afterwards a server that is gone
 * is news to be shown, and it is looked for again every RETRY. Two INFOs are kept; the one before the loss stays, so
 * that a server that was only unreachable has rates over the gap, and one that was started again is known by its
 * run_id.
 */
#include "tools/top/top_run.h"
#include "io/clock.h"
#include "io/error.h"
#include "tools/top/top_frame.h"
#include "tools/top/top_json.h"
#include "tools/top/top_screen.h"
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define S_NS         1000000000ull
#define RETRY_MIN_NS (S_NS / 2)
#define RETRY_MAX_NS (2 * S_NS)
#define TEXT_COLUMNS 100u /* of frames that go to no terminal */
#define PAGE_ROWS    10u

enum mode { MODE_SCREEN, MODE_TEXT, MODE_JSON };

struct run {
    const struct top_options *options;
    enum mode mode;
    bool colour, keys_open, over;
    struct top_link link;
    struct top_info infos[2]; /* the last and the one before */
    unsigned last;
    bool has_info, on_screen;
    uint64_t info_ns, info_ms; /* when the last came */
    struct top_rates rates;
    struct quire_error problem; /* why there is no connection; code 0: there is one */
    uint64_t problem_ns, next_problem_ns, asked_ns;
    uint64_t next_ask_ns, retry_ns, frames;
    struct top_view view;
    struct top_keys keys;
    struct top_canvas canvas;
    struct top_output_text out;
    sigset_t watched, ends;
    int signals, signal_number;
};

static uint64_t interval_ns(const struct run *run)
{
    return (uint64_t)(run->view.interval_s * (double)S_NS);
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

static int write_out(struct run *run, struct quire_error *err)
{
    int errnum = 0;
    pthread_sigmask(SIG_UNBLOCK, &run->ends, NULL);
    for (size_t at = 0; at < run->out.n && errnum == 0;) {
        ssize_t n = write(STDOUT_FILENO, run->out.bytes + at, run->out.n - at);
        if (n >= 0)
            at += (size_t)n;
        else if (errno == EAGAIN)
            poll(&(struct pollfd){.fd = STDOUT_FILENO, .events = POLLOUT}, 1, -1);
        else if (errno != EINTR)
            errnum = errno;
    }
    pthread_sigmask(SIG_BLOCK, &run->ends, NULL);
    return errnum == 0 ? 0 : error_set_errno(err, errnum, "write to", "standard output");
}

static struct top_shown show(const struct run *run, uint64_t now)
{
    struct top_shown shown = {.server = run->link.name};
    struct tm local;
    time_t seconds = time(NULL);
    if (run->has_info) {
        shown.info = &run->infos[run->last];
        shown.rates = &run->rates;
    }
    if (run->problem.code) {
        shown.problem = run->problem.message;
        shown.problem_s = (double)(now - run->problem_ns) / (double)S_NS;
    }
    if (run->link.state == TOP_LINK_ASKED)
        shown.silent_s = (double)(now - run->asked_ns) / (double)S_NS;
    if (!localtime_r(&seconds, &local) || strftime(shown.clock, sizeof shown.clock, "%H:%M:%S", &local) == 0)
        shown.clock[0] = 0;
    return shown;
}

static int draw(struct run *run, struct quire_error *err)
{
    uint32_t width, height;
    struct top_shown shown = show(run, clock_ns());
    run->out.n = 0;
    if (run->mode == MODE_JSON) {
        top_json_write(&shown, run->problem.code ? clock_wall_ms() : run->info_ms, &run->out);
    } else if (run->mode == MODE_SCREEN) {
        top_screen_size(&width, &height);
        top_canvas_begin(&run->canvas, width, height);
        top_frame_screen(&run->canvas, &run->view, &shown);
        top_canvas_write(&run->canvas, run->colour ? TOP_OUTPUT_COLOUR : TOP_OUTPUT_SCREEN, &run->out);
    } else {
        top_screen_size(&width, &height);
        top_canvas_begin(&run->canvas, isatty(STDOUT_FILENO) ? width : TEXT_COLUMNS, 0);
        if (run->frames > 1) /* frames are parted by an empty line */
            top_canvas_line(&run->canvas);
        top_frame_whole(&run->canvas, &run->view, &shown);
        top_canvas_write(&run->canvas, TOP_OUTPUT_PLAIN, &run->out);
    }
    if (run->out.failed)
        return error_set(err, QUIRE_ENOMEM, "no memory for a frame");
    return write_out(run, err);
}

/* On a screen only: what is shown has changed without a new INFO. */
static int redraw(struct run *run, struct quire_error *err)
{
    return run->on_screen ? draw(run, err) : 0;
}

/* A frame that counts. */
static int emit(struct run *run, struct quire_error *err)
{
    run->frames++;
    run->over = run->over || run->frames == run->options->count;
    return draw(run, err);
}

/* ---- the server -------------------------------------------------------------------------------------------------- */

static void set_retry(struct run *run, uint64_t now)
{
    uint64_t wait = interval_ns(run);
    wait = wait < RETRY_MIN_NS ? RETRY_MIN_NS : wait;
    run->retry_ns = now + (wait > RETRY_MAX_NS ? RETRY_MAX_NS : wait);
}

/* Before the first INFO an error ends all; afterwards it is shown. */
static int on_gone(struct run *run, const struct quire_error *why, struct quire_error *err)
{
    uint64_t now = clock_ns();
    bool news = run->problem.code == 0;
    assert(why->code < 0);
    if (!run->has_info || why->code == QUIRE_ENOMEM) {
        *err = *why;
        return why->code;
    }
    run->problem = *why;
    set_retry(run, now);
    if (!news)
        return redraw(run, err);
    run->problem_ns = now;
    run->next_problem_ns = now + interval_ns(run);
    return emit(run, err);
}

static int connect_server(struct run *run, struct quire_error *err)
{
    struct quire_error why = {0};
    pthread_sigmask(SIG_UNBLOCK, &run->ends, NULL); /* the look-up of a name may take long */
    int rc = top_link_open(&run->link, &why);
    pthread_sigmask(SIG_BLOCK, &run->ends, NULL);
    run->next_ask_ns = 0; /* at once, when it stands */
    return rc < 0 ? on_gone(run, &why, err) : 0;
}

static int on_text(struct run *run, const char *text, size_t bytes, struct quire_error *err)
{
    uint64_t now = clock_ns();
    struct quire_error why = {0};
    struct top_info *next = &run->infos[1 - run->last];
    int rc = top_info_parse(text, bytes, next, err);
    if (rc < 0)
        return rc;
    if (!*next->quire_version) {
        error_set(&why, QUIRE_EUNSUPPORTED, "%s: what answers there is no quire-server: its INFO has no quire_version",
                  run->link.name);
        top_link_close(&run->link);
        return on_gone(run, &why, err);
    }
    rc = top_rates_compute(run->has_info ? &run->infos[run->last] : NULL, next,
                           (double)(now - run->info_ns) / (double)S_NS, &run->rates, err);
    if (rc < 0)
        return rc;
    bool first = !run->has_info;
    run->last = 1 - run->last;
    run->has_info = true;
    run->info_ns = now;
    run->info_ms = clock_wall_ms();
    /* an answer that was late shortens no interval to nothing */
    if (run->next_ask_ns < now + interval_ns(run) / 2)
        run->next_ask_ns = now + interval_ns(run) / 2;
    run->problem = (struct quire_error){0};
    if (!first)
        return emit(run, err);
    if (run->mode != MODE_SCREEN)
        return 0; /* the first frame is the one that has rates */
    rc = top_screen_enter(err);
    run->on_screen = rc == 0;
    return rc == 0 ? draw(run, err) : rc;
}

/* What the connection has, and what the clock asks for. */
static int turn_link(struct run *run, struct quire_error *err)
{
    const char *text = NULL;
    size_t bytes = 0;
    struct quire_error why = {0};
    int rc = top_link_turn(&run->link, &text, &bytes, &why);
    if (rc < 0)
        return on_gone(run, &why, err);
    if (rc == TOP_LINK_REPLY)
        return on_text(run, text, bytes, err);
    uint64_t now = clock_ns();
    if (run->view.paused)
        return 0;
    if (run->link.state == TOP_LINK_READY && now >= run->next_ask_ns) {
        uint64_t next = run->next_ask_ns + interval_ns(run);
        run->next_ask_ns = next > now ? next : now + interval_ns(run);
        run->asked_ns = now;
        return top_link_ask(&run->link, err);
    }
    if (run->problem.code && now >= run->next_problem_ns) {
        run->next_problem_ns = now + interval_ns(run);
        return emit(run, err);
    }
    return run->link.state == TOP_LINK_DOWN && now >= run->retry_ns ? connect_server(run, err) : 0;
}

/* ---- the user ---------------------------------------------------------------------------------------------------- */

static void change_interval(struct run *run, double factor)
{
    double s = run->view.interval_s * factor;
    run->view.interval_s = s < TOP_INTERVAL_MIN_S   ? TOP_INTERVAL_MIN_S
                           : s > TOP_INTERVAL_MAX_S ? TOP_INTERVAL_MAX_S
                                                    : s;
    uint64_t next = clock_ns() + interval_ns(run);
    run->next_ask_ns = next < run->next_ask_ns ? next : run->next_ask_ns;
}

static void scroll(struct top_view *view, int rows)
{
    if (rows < 0)
        view->scroll = view->scroll > (uint32_t)-rows ? view->scroll - (uint32_t)-rows : 0;
    else
        view->scroll += (uint32_t)rows; /* the frame puts it back */
}

static void choose_table(struct top_view *view, enum top_table table)
{
    view->scroll = view->table == table ? view->scroll : 0;
    view->table = table;
}

static void on_key(struct run *run, int key)
{
    struct top_view *view = &run->view;
    switch (key) {
    case 'q':
        run->over = true;
        break;
    case 'h':
    case '?':
        view->help = !view->help;
        break;
    case 't':
        choose_table(view, TOP_TENANTS);
        break;
    case 'c':
        choose_table(view, TOP_CACHES);
        break;
    case 'm':
        choose_table(view, TOP_COMMANDS);
        break;
    case '\t':
        choose_table(view, (enum top_table)((view->table + 1) % TOP_N_TABLES));
        break;
    case 's':
        view->sort = (enum top_sort)((view->sort + 1) % TOP_N_SORTS);
        break;
    case 'r':
        view->reverse = !view->reverse;
        break;
    case 'p':
    case ' ':
        view->paused = !view->paused;
        break;
    case '+':
        change_interval(run, 2);
        break;
    case '-':
        change_interval(run, 0.5);
        break;
    case 'k':
    case TOP_KEY_UP:
        scroll(view, -1);
        break;
    case 'j':
    case TOP_KEY_DOWN:
        scroll(view, 1);
        break;
    case TOP_KEY_PAGE_UP:
        scroll(view, -(int)PAGE_ROWS);
        break;
    case TOP_KEY_PAGE_DOWN:
        scroll(view, (int)PAGE_ROWS);
        break;
    default:
        break; /* ^L too: a frame is always drawn anew */
    }
}

static int read_keys(struct run *run, struct quire_error *err)
{
    char bytes[64];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
    if (n <= 0 && (n == 0 || errno != EINTR)) {
        run->over = true; /* the terminal is gone */
        return 0;
    }
    for (ssize_t i = 0; i < n && !run->over; i++) {
        int key = top_screen_key(&run->keys, bytes[i]);
        if (key != TOP_KEY_NONE)
            on_key(run, key);
    }
    return run->over ? 0 : redraw(run, err);
}

/* ^Z: the shell gets its terminal, and the view comes back with SIGCONT. */
static int stop(struct run *run, struct quire_error *err)
{
    bool was = run->on_screen;
    top_screen_leave();
    raise(SIGSTOP);
    int rc = was ? top_screen_enter(err) : 0;
    return rc == 0 ? redraw(run, err) : rc;
}

static int read_signals(struct run *run, struct quire_error *err)
{
    struct signalfd_siginfo info;
    int rc = 0;
    while (rc == 0 && read(run->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (sigismember(&run->ends, (int)info.ssi_signo)) {
            run->signal_number = (int)info.ssi_signo;
            run->over = true;
        } else if (info.ssi_signo == SIGTSTP) {
            rc = stop(run, err);
        } else if (info.ssi_signo == SIGCONT && run->on_screen) {
            rc = top_screen_enter(err); /* a shell may have set its own modes meanwhile */
            rc = rc == 0 ? redraw(run, err) : rc;
        } else {
            rc = redraw(run, err);
        }
    }
    return rc;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static int wait_ms(const struct run *run)
{
    uint64_t now = clock_ns(), until = now + 3600 * S_NS;
    bool waits = run->link.state == TOP_LINK_CONNECTING || run->link.state == TOP_LINK_ASKED;
    if (waits)
        until = run->link.deadline_ns;
    else if (!run->view.paused)
        until = run->link.state == TOP_LINK_READY ? run->next_ask_ns : run->retry_ns;
    if (!run->view.paused && run->problem.code && run->next_problem_ns < until)
        until = run->next_problem_ns;
    if (run->on_screen && (waits || run->problem.code) && until > now + S_NS)
        until = now + S_NS; /* the seconds that are shown go on */
    return until <= now ? 0 : (int)((until - now + 999999) / 1000000);
}

static int turn(struct run *run, struct quire_error *err)
{
    struct pollfd fds[] = {{.fd = run->signals, .events = POLLIN},
                           {.fd = run->link.fd, .events = top_link_events(&run->link)},
                           {.fd = run->on_screen && run->keys_open ? STDIN_FILENO : -1, .events = POLLIN}};
    int n = poll(fds, sizeof fds / sizeof *fds, wait_ms(run)), rc = 0;
    if (n < 0 && errno != EINTR)
        return error_set_errno(err, errno, "wait for", "the server");
    if (n > 0 && fds[0].revents)
        rc = read_signals(run, err);
    if (n > 0 && fds[2].revents && rc == 0 && !run->over)
        rc = read_keys(run, err);
    if (n == 0 && (run->problem.code || run->link.state == TOP_LINK_ASKED))
        rc = redraw(run, err);
    return rc == 0 && !run->over ? turn_link(run, err) : rc;
}

static bool wants_colour(void)
{
    const char *no_color = getenv("NO_COLOR");
    return !no_color || !*no_color;
}

int top_run(const struct top_options *options, int *signal_number, struct quire_error *err)
{
    sigset_t before;
    struct run run = {.options = options,
                      .colour = wants_colour(),
                      .keys_open = isatty(STDIN_FILENO),
                      .mode = options->json                             ? MODE_JSON
                              : options->text || !top_screen_possible() ? MODE_TEXT
                                                                        : MODE_SCREEN,
                      .view = {.table = options->table, .sort = options->sort, .interval_s = options->interval_s}};
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    top_link_init(&run.link, &options->address);
    sigemptyset(&run.ends);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        sigaddset(&run.ends, ends[i]);
    run.watched = run.ends;
    sigaddset(&run.watched, SIGWINCH);
    sigaddset(&run.watched, SIGTSTP);
    sigaddset(&run.watched, SIGCONT);
    top_screen_catch();
    pthread_sigmask(SIG_BLOCK, &run.watched, &before);
    run.signals = signalfd(-1, &run.watched, SFD_CLOEXEC | SFD_NONBLOCK);
    int rc = run.signals < 0 ? error_set_errno(err, errno, "watch for", "signals") : connect_server(&run, err);
    while (rc == 0 && !run.over)
        rc = turn(&run, err);
    top_screen_leave();
    if (run.signals >= 0)
        close(run.signals);
    top_link_fini(&run.link);
    top_info_fini(&run.infos[0]);
    top_info_fini(&run.infos[1]);
    top_rates_fini(&run.rates);
    top_canvas_fini(&run.canvas);
    free(run.out.bytes);
    *signal_number = run.signal_number;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}
