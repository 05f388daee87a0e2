/* A secret that may become another one while others use it: a password whose file is read again.
 * Any thread. */
#pragma once

#include "base/base.h"

struct mr_secret;

/* `text` was malloc'ed, and is the secret's from now on. */
struct mr_secret *mr_secret_new(char *text);

/* Overwrites it, too. After the last use; NULL is fine. */
void mr_secret_free(struct mr_secret *secret);

/* Whoever keeps it looks what it is now, and calls mr_secret_change; true: it has become another
 * one. Any thread. */
typedef bool (*mr_secret_look_fn)(void *context);
void mr_secret_keep(struct mr_secret *secret, mr_secret_look_fn look, void *context);

/* Has that done; false for NULL, and where nobody keeps it. */
bool mr_secret_look(struct mr_secret *secret);

/* What it is now, after a look, to be given to mr_secret_forget; NULL for NULL. */
char *mr_secret_take(struct mr_secret *secret);

/* Overwrites and frees; NULL is fine. */
void mr_secret_forget(char *text);

/* False: it is this text already. */
bool mr_secret_change(struct mr_secret *secret, const char *text);

/* Calls `hear` now and after each change, until another one listens (NULL: nobody). It must not use
 * the secret, nor wait for a thread that does. NULL is a secret that never changes. */
typedef void (*mr_secret_fn)(void *context, const char *text);
void mr_secret_listen(struct mr_secret *secret, mr_secret_fn hear, void *context);
