"""Which RPC is answered by what. The contract is the descriptors': what they have and nobody answers is refused by name."""

from collections.abc import Iterator, Mapping

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from fila import limits
from fila.broker.loop import Broker
from fila.errors import UnimplementedError
from fila.server.admin import Admin
from fila.server.call import Call, Handler, refuse, unary
from fila.server.consume import consume_handler
from fila.server.enqueue import Enqueuer, check_batch_frame
from fila.server.lease import lease_handler
from fila.server.produce import produce_handler
from fila.server.settle import Settler
from fila.server.streams import Streams
from fila.server.subscribe import subscribe_handler
from fila.wire.v1 import admin_pb2, service_pb2

SERVICES: tuple[ServiceDescriptor, ...] = (
    service_pb2.DESCRIPTOR.services_by_name["FilaService"],
    admin_pb2.DESCRIPTOR.services_by_name["FilaAdmin"],
)


def service_handlers(
    broker: Broker, streams: Streams, *, window_default: int, quantum_default: int
) -> Iterator[grpc.GenericRpcHandler]:
    """Yield a handler for each service of the contract, complete."""
    answers = {
        "FilaService": _message_handlers(broker, streams, window_default),
        "FilaAdmin": _admin_handlers(Admin(broker, quantum_default=quantum_default)),
    }
    for service in SERVICES:
        handlers = answers[service.name]
        unknown = handlers.keys() - {method.name for method in service.methods}
        assert not unknown, f"{service.full_name} has no {unknown}"
        complete = {method.name: handlers.get(method.name) or _absent(method) for method in service.methods}
        yield grpc.method_handlers_generic_handler(service.full_name, complete)


def _message_handlers(broker: Broker, streams: Streams, window_default: int) -> Mapping[str, Handler]:
    enqueuer, settler = Enqueuer(broker), Settler(broker)
    return {
        "Enqueue": unary(service_pb2.EnqueueRequest, enqueuer.enqueue, limits.FRAME_BYTES_MAX),
        "EnqueueBatch": unary(
            service_pb2.EnqueueBatchRequest,
            enqueuer.enqueue_batch,
            limits.FRAME_BYTES_MAX,
            check_batch_frame,
        ),
        "Ack": unary(service_pb2.AckRequest, settler.ack),
        "AckBatch": unary(service_pb2.AckBatchRequest, settler.ack_batch),
        "Nack": unary(service_pb2.NackRequest, settler.nack),
        "NackBatch": unary(service_pb2.NackBatchRequest, settler.nack_batch),
        "ExtendLease": unary(service_pb2.ExtendLeaseRequest, settler.extend_lease),
        "ReleaseBatch": unary(service_pb2.ReleaseBatchRequest, settler.release_batch),
        "Lease": lease_handler(broker, streams),
        "Consume": consume_handler(broker, streams, window_default=window_default),
        "Produce": produce_handler(broker, streams),
        "Subscribe": subscribe_handler(broker, streams),
    }


def _admin_handlers(admin: Admin) -> Mapping[str, Handler]:
    return {
        "CreateQueue": unary(admin_pb2.CreateQueueRequest, admin.create_queue),
        "DeleteQueue": unary(admin_pb2.DeleteQueueRequest, admin.delete_queue),
        "PurgeQueue": unary(admin_pb2.PurgeQueueRequest, admin.purge_queue),
        "ListQueues": unary(admin_pb2.ListQueuesRequest, admin.list_queues),
        "SetConfig": unary(admin_pb2.SetConfigRequest, admin.set_config),
        "GetConfig": unary(admin_pb2.GetConfigRequest, admin.get_config),
        "ListConfig": unary(admin_pb2.ListConfigRequest, admin.list_config),
        "GetStats": unary(admin_pb2.GetStatsRequest, admin.get_stats),
    }


def _absent(method: MethodDescriptor) -> Handler:
    """Return a handler that says by name what this broker does not have."""
    error = UnimplementedError(f"this broker does not have {method.full_name}")

    async def refuse_by_name(_request: object, call: Call) -> None:
        await refuse(call, error)

    kinds = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    return kinds[method.client_streaming, method.server_streaming](refuse_by_name)
