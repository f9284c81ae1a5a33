// A stand-in for MPI's library, in the form of Open MPI: ranks on one machine, each a process that the test starts, with the
// variables of Open MPI's launcher. Only what the program calls is there.
//
// Every two ranks share a socket below the folder RUNNER_SIM_JOB. Messages are written and read in whatever call comes
// next, so that no call waits, but for the first and the last. A rank that is killed or stopped ends none of the others, and
// none of them learns of it: what they notice, they notice by themselves.

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT char ompi_mpi_comm_world, ompi_mpi_byte, ompi_mpi_errors_return;
char ompi_mpi_comm_world, ompi_mpi_byte, ompi_mpi_errors_return;

namespace {

struct Head {
    int32_t tag, bytes;
};

struct Request {
    int peer, tag;
    char* to;   // where a received message goes; null for a send, which is done once it is queued
    int bytes;
};

struct Peer {
    int socket = -1;
    bool gone = false;
    std::string out, in;
    std::map<int, std::deque<std::string>> came;   // by tag, in order
};

int own_rank = 0;
std::vector<Peer> peers;

int number(const char* name) {
    const char* text = getenv(name);
    return text ? atoi(text) : 0;
}

sockaddr_un address(int rank) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    snprintf(at.sun_path, sizeof at.sun_path, "%s/%d", getenv("RUNNER_SIM_JOB"), rank);
    return at;
}

// Writes and reads what can be without waiting.
void move(Peer& peer) {
    if (peer.socket < 0 || peer.gone) return;
    ssize_t n;
    while (!peer.out.empty() && (n = send(peer.socket, peer.out.data(), peer.out.size(), MSG_NOSIGNAL)) > 0)
        peer.out.erase(0, (size_t)n);
    static char buffer[1 << 16];
    while ((n = recv(peer.socket, buffer, sizeof buffer, 0)) > 0) peer.in.append(buffer, (size_t)n);
    peer.gone = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    for (Head head; peer.in.size() >= sizeof head;) {
        memcpy(&head, peer.in.data(), sizeof head);
        if (peer.in.size() < sizeof head + (size_t)head.bytes) break;
        peer.came[head.tag].push_back(peer.in.substr(sizeof head, (size_t)head.bytes));
        peer.in.erase(0, sizeof head + (size_t)head.bytes);
    }
}

void move_all() {
    for (Peer& peer : peers) move(peer);
}

}   // namespace

EXPORT int MPI_Init_thread(void*, void*, int wanted, int* provided) {
    *provided = wanted;
    own_rank = number("OMPI_COMM_WORLD_RANK");
    peers.resize((size_t)number("OMPI_COMM_WORLD_SIZE"));
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un own = address(own_rank);
    if (bind(listener, (sockaddr*)&own, sizeof own) || listen(listener, (int)peers.size())) return 1;
    for (int rank = 0; rank < own_rank; rank++) {
        int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_un at = address(rank);
        while (connect(made, (sockaddr*)&at, sizeof at)) usleep(1000);   // until it listens
        if (write(made, &own_rank, sizeof own_rank) != sizeof own_rank) return 1;
        peers[(size_t)rank].socket = made;
    }
    for (int more = own_rank + 1; more < (int)peers.size(); more++) {
        int made = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), rank = 0;
        if (made < 0 || read(made, &rank, sizeof rank) != sizeof rank) return 1;
        peers[(size_t)rank].socket = made;
    }
    close(listener);
    for (Peer& peer : peers)
        if (peer.socket >= 0) fcntl(peer.socket, F_SETFL, O_NONBLOCK);
    return 0;
}
EXPORT int MPI_Comm_rank(void*, int* rank) { return *rank = own_rank, 0; }
EXPORT int MPI_Comm_size(void*, int* size) { return *size = (int)peers.size(), 0; }
EXPORT int MPI_Comm_set_errhandler(void*, void*) { return 0; }
EXPORT int MPI_Get_library_version(char* text, int* len) { return *len = sprintf(text, "Stand-in MPI v1.0, for tests"), 0; }
EXPORT int MPI_Isend(const void* from, int bytes, void*, int peer, int tag, void*, Request** request) {
    Head head{tag, bytes};
    Peer& to = peers[(size_t)peer];
    to.out.append((const char*)&head, sizeof head).append((const char*)from, (size_t)bytes);
    move(to);
    return *request = new Request{peer, tag, nullptr, bytes}, 0;
}
EXPORT int MPI_Irecv(void* to, int bytes, void*, int peer, int tag, void*, Request** request) {
    return *request = new Request{peer, tag, (char*)to, bytes}, 0;
}
EXPORT int MPI_Test(Request** handle, int* done, void*) {
    move_all();
    Request* request = *handle;
    *done = 1;
    if (request->to) {
        auto& came = peers[(size_t)request->peer].came[request->tag];
        *done = !came.empty();
        if (!*done) return 0;
        if (came.front().size() != (size_t)request->bytes) return 15;   // MPI_ERR_TRUNCATE
        memcpy(request->to, came.front().data(), came.front().size());
        came.pop_front();
    }
    delete request;
    return *handle = nullptr, 0;
}
// Waits until all others have come here or are gone.
EXPORT int MPI_Finalize() {
    for (Peer& peer : peers)
        for (bool told = false; peer.socket >= 0 && !peer.gone;) {
            move(peer);
            if (peer.out.empty() && !told) told = !shutdown(peer.socket, SHUT_WR);
            usleep(500);
        }
    return 0;
}
