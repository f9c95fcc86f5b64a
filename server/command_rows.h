/* command_rows.h - the rows of the command table, which name handlers of all rooms. */
#ifndef QUIRE_SERVER_COMMAND_ROWS_H
#define QUIRE_SERVER_COMMAND_ROWS_H

/* Gives them to the table (access/command_table.h): before anything looks a command up. Again: nothing. */
void command_rows_set(void);

#endif
