/*
 * What Spark starts in place of Python: it hands its arguments, folder, environment and streams to the warm host (warm_host.py),
 * which forks a process for them, and ends as that process does.
 *
 * Spark starts half a dozen of them for a job, and a Python that starts costs ten times the CPU.
 */
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <stdio.h>
#include <stdlib.h>

enum { MESSAGE_BYTES_MAX = 1 << 17, STREAMS = 3 };

extern char **environ;
static char message[MESSAGE_BYTES_MAX];
static size_t length;

/* Append a field; a zero byte parts it from the next. */
static void add(const char *field)
{
    size_t size = strlen(field) + 1;
    if (length + size > sizeof message) {
        fprintf(stderr, "the command line and the environment are longer than %d bytes\n", MESSAGE_BYTES_MAX);
        exit(1);
    }
    memcpy(message + length, field, size);
    length += size;
}

int main(int argc, char **argv)
{
    struct sockaddr_un host = {.sun_family = AF_UNIX, .sun_path = HOST};
    char folder[4096], count[16], answer[64] = "";
    int connection = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (!getcwd(folder, sizeof folder) || connect(connection, (struct sockaddr *)&host, sizeof host) != 0) {
        perror(HOST);
        return 1;
    }
    snprintf(count, sizeof count, "%d", argc - 1);
    add("python");
    add(folder);
    add(count);
    for (int i = 1; i < argc; i++)
        add(argv[i]);
    for (char **variable = environ; *variable; variable++)
        add(*variable);

    union {
        char octets[CMSG_SPACE(STREAMS * sizeof(int))];
        struct cmsghdr aligned;
    } control = {{0}};
    struct iovec part = {message, length};
    struct msghdr sent = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.octets, .msg_controllen = sizeof control.octets};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&sent);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(STREAMS * sizeof(int));
    for (int number = 0; number < STREAMS; number++)
        memcpy(CMSG_DATA(rights) + number * sizeof number, &number, sizeof number);
    if (sendmsg(connection, &sent, 0) < 0) {
        perror(HOST);
        return 1;
    }
    ssize_t got = recv(connection, answer, sizeof answer - 1, 0);
    return got > 0 ? atoi(answer) & 255 : 1;
}
