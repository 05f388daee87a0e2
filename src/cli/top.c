#include "cli/cli.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

enum { PERIOD_MS = 1000 };

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

/* Lines that don't fit on the screen are left out, and what an earlier drawing left behind is wiped. */
static void draw(FILE *to, const char *text)
{
    struct winsize window = {0};
    bool terminal = ioctl(fileno(to), TIOCGWINSZ, &window) == 0 && window.ws_row > 1;
    size_t columns = terminal ? window.ws_col : SIZE_MAX;
    size_t rows = terminal ? window.ws_row - 1u : SIZE_MAX;
    fputs(terminal ? "\033[H" : "", to);
    for (size_t row = 0; row < rows && *text != '\0'; row++) {
        size_t len = strcspn(text, "\n");
        size_t shown = len < columns ? len : columns;
        while (shown < len && ((unsigned char)text[shown] & 0xc0) == 0x80) {
            shown--; /* not in the middle of a character */
        }
        fprintf(to, "%.*s%s\n", (int)shown, text, terminal ? "\033[K" : "");
        text += len + (text[len] == '\n');
    }
    fputs(terminal ? "\033[J" : "\n", to);
    fflush(to);
}

static bool wants_to_leave(int wait_ms)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char key = 0;
    bool typed = poll(&input, isatty(STDIN_FILENO) ? 1 : 0, wait_ms) > 0;
    return interrupted || (typed && (read(STDIN_FILENO, &key, 1) != 1 || key == 'q'));
}

void mr_ask_top(const struct mr_http_options *server, FILE *to)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct termios before;
    bool terminal = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &before) == 0;
    if (terminal) {
        struct termios raw = before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    do {
        char *text = NULL;
        size_t len = 0;
        FILE *page = open_memstream(&text, &len);
        MR_ASSERT(page != NULL);
        struct mr_error error = {0};
        if (mr_ask_status(server, page, &error) != MR_OK) {
            fprintf(page, "%s\n", error.text);
        }
        fclose(page);
        draw(to, text);
        free(text);
    } while (!wants_to_leave(PERIOD_MS));
    if (terminal) {
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    }
}
