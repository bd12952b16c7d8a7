# The image of all programs: groundplane-operator, groundplane-router, groundplane-shard and the command line groundplane.
# docs/image.md says how it is built, run and checked.
#
# The base is named once and serves every stage: a virtual environment is bound to the interpreter that made it.
ARG BASE_IMAGE=python:3.11-slim-bookworm

# pip and the build backend. They are mounted where they are needed, at a folder that every base has, and get into no image.
# An index or a CA of one's own comes as a secret and leaves no trace; without secrets pip's defaults hold.
FROM ${BASE_IMAGE} AS tools
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements-build.lock /build/
RUN --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.pem \
    python3 -m venv /mnt \
 && PIP_CONFIG_FILE=/run/secrets/pip.conf /mnt/bin/python -m pip install --progress-bar off \
      --require-hashes --only-binary :all: -r /build/requirements-build.lock

FROM ${BASE_IMAGE} AS dependencies
# The same in any image: a name for the user whose number stands in USER below.
RUN echo 'groundplane:x:65532:65532::/nonexistent:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'groundplane:x:65532:' >> /etc/group
COPY requirements-image.lock /opt/groundplane/requirements.lock
RUN --mount=type=bind,from=tools,source=/mnt,target=/mnt --mount=type=secret,id=pip.conf --mount=type=secret,id=ca.pem \
    python3 -m venv --without-pip /opt/groundplane \
 && PIP_CONFIG_FILE=/run/secrets/pip.conf /mnt/bin/python -m pip --python /opt/groundplane/bin/python \
      install --no-cache-dir --disable-pip-version-check --progress-bar off \
      --require-hashes --only-binary :all: -r /opt/groundplane/requirements.lock

# The project itself, as the files that it adds to /opt/groundplane.
FROM dependencies AS code
COPY pyproject.toml README.md LICENSE /build/
COPY lib /build/lib
COPY operator /build/operator
COPY router /build/router
COPY shard /build/shard
RUN --mount=type=bind,from=tools,source=/mnt,target=/mnt \
    /mnt/bin/python -m pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /wheels /build \
 && /mnt/bin/python -m pip --python /opt/groundplane/bin/python \
      install --no-index --no-deps --no-warn-script-location --root /layer /wheels/*.whl

# The last layer is the only one that a change of code makes anew.
FROM dependencies
ENV PATH=/opt/groundplane/bin:/usr/local/bin:/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 MALLOC_ARENA_MAX=2
# The number, not the name: Kubernetes checks runAsNonRoot without looking into the image.
USER 65532:65532
CMD ["groundplane", "--help"]
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="groundplane" \
      org.opencontainers.image.description="Grounds LLM agents in their own tenant's records" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=code /layer /
