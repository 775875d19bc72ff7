# weft in a container, for any user and a read-only root: docker build -t weft . && docker run --rm weft show superpod:su=1
# deploy/rootfs.py builds the same root file system from these lines without a container engine: make image.
FROM debian:trixie-slim
# The compiler is for `weft join` and `weft exec`, libpython for programs in C; the tools run on labs.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev ibverbs-utils infiniband-diags perftest \
       python3-venv libpython3.13 \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/weft
ENV PATH=/opt/weft/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# The packages that weft needs change seldom, its sources often: they are a layer of their own.
COPY pyproject.toml /src/
RUN python -c 'import tomllib; project = tomllib.load(open("/src/pyproject.toml", "rb"))["project"]; \
extras = project["optional-dependencies"]; \
print(*project["dependencies"], *extras["plots"], *extras["postgres"], *extras["serve"], sep="\n")' > /src/requirements \
    && pip install --no-cache-dir -r /src/requirements
COPY README.md LICENSE /src/
COPY src /src/src
COPY web /src/web
RUN pip install --no-cache-dir --no-deps /src && rm -rf /src
# Kernels and libraries are compiled now, for every processor of this architecture instead of the one that builds.
ENV NUMBA_CPU_NAME=generic XDG_CACHE_HOME=/opt/cache HOME=/tmp
RUN weft doctor --compile && rm -rf /tmp/* && chmod -R a+rX /opt/cache && mkdir -m 1777 /work
USER 10001
WORKDIR /work
# Of a lab; hosts that joined: --health-cmd 'test -e FOLDER/env'.
HEALTHCHECK --interval=30s --timeout=20s --start-period=60s CMD ["weft", "sm", "status"]
ENTRYPOINT ["weft"]
CMD ["--help"]
