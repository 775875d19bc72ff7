# weft in a container, as whoever runs it: docker build -t weft . && docker run --rm weft show superpod:su=1
FROM python:3.11-slim
COPY pyproject.toml README.md LICENSE /src/
COPY src /src/src
COPY web /src/web
# All that weft needs comes as wheels: no compiler, no system library.
RUN pip install --no-cache-dir '/src[plots,postgres,serve]' && rm -rf /src && mkdir -m 1777 /cache /work && useradd --create-home weft
# Compiled kernels, for a volume: the first run of a command compiles what it needs.
ENV XDG_CACHE_HOME=/cache
USER weft
WORKDIR /work
ENTRYPOINT ["weft"]
CMD ["--help"]
