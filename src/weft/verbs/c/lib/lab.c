/* List the devices of a lab host without Python: the question "devices" of weft.verbs.carriers.lab.connection. */
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "weft.h"

enum { NUMBER_BYTES = sizeof(uint32_t), QUESTION_MAX = 1024, ANSWER_MAX = 1 << 20, TIMEOUT_S = 10, ROOT = 0 };

static int dial(const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct timeval timeout = {.tv_sec = TIMEOUT_S};
    struct ucred lab;
    socklen_t size = sizeof(lab);
    if (strlen(path) >= sizeof(name.sun_path)) return -1;
    strcpy(name.sun_path, path);
    int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    if (!connect(file, (struct sockaddr *)&name, sizeof(name)) && !getsockopt(file, SOL_SOCKET, SO_PEERCRED, &lab, &size)
        && (lab.uid == geteuid() || lab.uid == ROOT)) return file;
    if (file >= 0) close(file);
    return -1;
}

static char *read_answer(int file)
{
    struct weft_frame frame;
    if (recv(file, &frame, sizeof(frame), MSG_WAITALL) != sizeof(frame) || frame.kind != WEFT_ANSWER) return NULL;
    if (frame.length < NUMBER_BYTES || frame.length > ANSWER_MAX) return NULL;
    ssize_t length = frame.length - NUMBER_BYTES;
    char *text = calloc(1, length + 1);
    if (text && recv(file, text, length, MSG_WAITALL) == length && !strncmp(text, "{\"devices\": ", 12)) return text;
    free(text);
    return NULL;
}

char *weft_lab_devices(const char *path, const char *host)
{
    struct __attribute__((packed)) { struct weft_frame frame; char text[QUESTION_MAX]; } question = {{.kind = WEFT_QUESTION}};
    if (strpbrk(host, "\"\\")) return NULL;
    int length = snprintf(question.text, QUESTION_MAX, "{\"do\": \"devices\", \"host\": \"%s\"}", host);
    if (length >= QUESTION_MAX) return NULL;
    int file = dial(path);
    if (file < 0) return NULL;
    question.frame.length = NUMBER_BYTES + length;
    ssize_t size = sizeof(question.frame) + length;
    char *answer = send(file, &question, size, MSG_NOSIGNAL) == size ? read_answer(file) : NULL;
    close(file);
    return answer;
}
