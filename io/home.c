/*
 * home.c - a page that the kernel empties in a child (MADV_WIPEONFORK, Linux 4.14), so that no number has to be asked
 * for at each call; where there is none (some sandboxes), the process's number is.
 */
#include "io/home.h"
#include "io/error.h"
#include <assert.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096u

int home_init(struct home *home, struct quire_error *err)
{
    void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *home = (struct home){.pid = getpid()};
    if (page == MAP_FAILED)
        return error_set(err, QUIRE_ENOMEM, "no memory for a page");
    if (madvise(page, PAGE_BYTES, MADV_WIPEONFORK) != 0) {
        munmap(page, PAGE_BYTES);
        return 0;
    }
    *(volatile uint8_t *)page = 1;
    home->page = page;
    assert(home_check(home, NULL) == 0);
    return 0;
}

void home_fini(struct home *home)
{
    if (home->page)
        munmap((void *)(uintptr_t)home->page, PAGE_BYTES);
    *home = (struct home){.page = NULL};
}

int home_check(const struct home *home, struct quire_error *err)
{
    if (home->page ? *home->page != 0 : getpid() == home->pid)
        return 0;
    return error_set(err, QUIRE_ECLOSED,
                     "this handle was opened in process %d and this one, %d, was forked from it: open the folder anew "
                     "here when the other has closed it, or an index at once",
                     (int)home->pid, (int)getpid());
}
