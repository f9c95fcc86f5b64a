/* label.c - names that clients chose, where only plain characters may stand. */
#include "server/protocol/label.h"
#include <stdio.h>
#include <string.h>

static bool is_plain(unsigned char c)
{
    return c > ' ' && c < 0x7f && !strchr("%,:;*=\"\\#", c);
}

void label_write(struct quire_bytes name, char text[LABEL_BYTES])
{
    const unsigned char *bytes = name.data;
    size_t used = 0;
    for (size_t i = 0; i < name.n_bytes && used + 4 < LABEL_BYTES; i++) {
        if (is_plain(bytes[i]))
            text[used++] = (char)bytes[i];
        else
            used += (size_t)snprintf(text + used, 4, "%%%02X", bytes[i]);
    }
    text[used] = 0;
}
