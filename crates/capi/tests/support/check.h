/* What the test programs have in common. */
#ifndef CLEARWAY_TESTS_CHECK_H
#define CLEARWAY_TESTS_CHECK_H

#include <clearway.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the program with the place and the library's last error if the condition is false. */
#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, clearway_last_error()); \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

#endif
