"""The routes of the router."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.types import Lifespan

from groundplane.errors import GroundplaneError
from groundplane.process.http import BugBarrier, PatternRoute
from groundplane.process.logs import Log
from groundplane.process.metrics import MetricsEndpoint
from groundplane_router.api import Api
from groundplane_router.metrics import RouterMetrics
from groundplane_router.openapi import OpenApiPages
from groundplane_router.probes import Probes
from groundplane_router.problems import RouterProblems
from groundplane_router.request_log import RequestLog


def api_routes(api: Api) -> list[BaseRoute]:
    """Return the routes that need a token. An id may hold slashes, so it is the rest of its path."""
    return [
        PatternRoute("/v1/ground", api.ground, methods=["POST"]),
        PatternRoute("/v1/evidence", api.evidence, methods=["POST"]),
        PatternRoute("/v1/documents", api.index_documents, methods=["POST"]),
        PatternRoute("/v1/documents", api.list_documents, methods=["GET"]),
        PatternRoute("/v1/documents/{id:path}", api.get_document, methods=["GET"]),
        PatternRoute("/v1/documents/{id:path}", api.delete_document, methods=["DELETE"]),
        PatternRoute("/v1/memos/{name}/{fingerprint}", api.put_memo, methods=["PUT"]),
        PatternRoute("/v1/memos/{name}/{fingerprint}", api.get_memo, methods=["GET"]),
        PatternRoute("/v1/memos/{name}/{fingerprint}", api.delete_memo, methods=["DELETE"]),
        PatternRoute("/v1/corpus", api.corpus, methods=["GET"]),
        PatternRoute("/v1/corpus/reindex", api.reindex, methods=["POST"]),
    ]


def open_routes(probes: Probes, metrics: MetricsEndpoint, pages: OpenApiPages) -> list[BaseRoute]:
    """Return the routes that anyone in the cluster may ask."""
    return [
        PatternRoute("/healthz", probes.health, methods=["GET"]),
        PatternRoute("/readyz", probes.ready, methods=["GET"]),
        PatternRoute("/metrics", metrics, methods=["GET"]),
        PatternRoute("/openapi.json", pages.document, methods=["GET"]),
        PatternRoute("/docs", pages.page, methods=["GET"]),
    ]


def build_app(
    routes: list[BaseRoute], problems: RouterProblems, metrics: RouterMetrics, lifespan: Lifespan[Starlette]
) -> Starlette:
    """Return the application; its lifespan starts and stops what runs beside the requests."""
    handlers = {GroundplaneError: problems, HTTPException: problems}
    log = Middleware(RequestLog, metrics=metrics, log=Log("router.requests"))
    barrier = Middleware(BugBarrier, answer=problems)
    app = Starlette(routes=routes, middleware=[log, barrier], exception_handlers=handlers, lifespan=lifespan)
    app.router.redirect_slashes = False
    return app
