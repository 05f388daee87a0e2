# millrace as a container image: docker build -t millrace .
#
# Stages: build (compiler), runtime (the default: the program and the libraries it links,
# nothing else, no shell), profiling (the same program with perf, strace, valgrind, bpftrace
# and debug symbols): docker build --target profiling -t millrace:profiling .

# The digest is that of Debian 13.7; Dependabot asks for newer ones, scripts/pin-images.sh writes them.
FROM debian:13-slim@sha256:a99cfc517144bc59b1978475ec53b46ecabec7e43635402ee5b77cc54cd1b20a AS build
WORKDIR /src
# The list of packages is scripts/setup.sh's, and changes more rarely than the sources.
COPY scripts/setup.sh scripts/librdkafka.sh scripts/librdkafka.patch scripts/
COPY scripts/lib/base.sh scripts/lib/
RUN scripts/setup.sh --build-only && rm -rf /var/lib/apt/lists/*
COPY CMakeLists.txt CMakePresets.json ./
COPY src src
COPY docs/runbook.md docs/
RUN cmake --preset release -D MILLRACE_TESTS=OFF -D MILLRACE_LOAD=OFF \
    && cmake --build --preset release --target millrace
COPY docker/rootfs.sh docker/
RUN docker/rootfs.sh /rootfs /debug build/release/millrace build/release/millrace-verify

FROM debian:13-slim@sha256:a99cfc517144bc59b1978475ec53b46ecabec7e43635402ee5b77cc54cd1b20a AS profiling
COPY --from=build /rootfs/var/lib/dpkg/status.d /tmp/libraries
# libc6-dbg: without it valgrind does not start.
RUN apt-get update && apt-get install -y --no-install-recommends \
        linux-perf strace valgrind bpftrace libc6-dbg procps ca-certificates $(ls /tmp/libraries) \
    && rm -rf /var/lib/apt/lists/* /tmp/libraries
COPY --from=build /debug /
COPY --from=build /rootfs/usr/bin/ /usr/bin/
COPY docker/millrace.toml /etc/millrace/config.toml
ENTRYPOINT ["/usr/bin/millrace"]
CMD ["--config", "/etc/millrace/config.toml"]

FROM scratch AS runtime
COPY --from=build /rootfs /
COPY docker/millrace.toml /etc/millrace/config.toml
# By number, so that Kubernetes can see that it is not root.
USER 65532:65532
EXPOSE 9464
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["/usr/bin/millrace", "health", "--config", "/etc/millrace/config.toml"]
ENTRYPOINT ["/usr/bin/millrace"]
CMD ["--config", "/etc/millrace/config.toml"]
