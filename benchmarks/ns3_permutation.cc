// Permutation traffic on a three-level fat tree in ns-3: the peer of weft's packet engine.
//
//     ns3_permutation K BYTES_PER_FLOW < destinations      # K^3/4 numbers: host i sends to the i-th
//
// The k-ary tree of Al-Fares, Loukissas and Vahdat, "A Scalable, Commodity Data Center Network Architecture" (2008):
// k pods of k/2 edge and k/2 aggregation switches, and (k/2)^2 core switches. Hosts are numbered pod by pod, edge
// switch by edge switch. Prints one line of JSON, or fails if a packet was lost or strayed from a shortest path.
//
// ns-3 is given its best: UDP over IPv4 and point-to-point devices as they come, but no queue discipline and no flow
// control towards one, no IPv6, no checksums, no events to pace the senders, the default scheduler (of the other four
// that it brings none was faster by more than 2 %), and forwarding by an array: its Ipv4StaticRouting and
// Ipv4GlobalRouting search a list of routes for every packet at every hop.

#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/network-module.h>
#include <ns3/point-to-point-module.h>

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

using namespace ns3;

constexpr uint32_t PAYLOAD_BYTES = 4096;
constexpr uint32_t FIRST_ADDRESS = 0x0a000001; // 10.0.0.1 is host 0
constexpr uint16_t PORT = 4791;

uint64_t links_crossed = 0;
uint64_t packets_delivered = 0;
uint64_t bytes_delivered = 0;
Time last_arrival;

// What a switch's linear forwarding table is, as an ns-3 routing protocol: destination -> out port, no search.
class ForwardingTable : public Ipv4RoutingProtocol
{
  public:
    std::vector<Ptr<Ipv4Route>> route_of_host; // null: this node is that host
    Ptr<Ipv4> ipv4;

    Ptr<Ipv4Route> RouteOutput(Ptr<Packet>, const Ipv4Header& header, Ptr<NetDevice>, Socket::SocketErrno&) override
    {
        return route_of_host[header.GetDestination().Get() - FIRST_ADDRESS];
    }

    // Called once where a link ends, so this is where links are counted.
    bool RouteInput(Ptr<const Packet> packet, const Ipv4Header& header, Ptr<const NetDevice> device,
                    UnicastForwardCallback forward, MulticastForwardCallback, LocalDeliverCallback deliver,
                    ErrorCallback) override
    {
        ++links_crossed;
        const auto& route = route_of_host[header.GetDestination().Get() - FIRST_ADDRESS];
        if (route)
            forward(route, packet, header);
        else
            deliver(packet, header, ipv4->GetInterfaceForDevice(device));
        return true;
    }

    void SetIpv4(Ptr<Ipv4> value) override { ipv4 = value; }
    void NotifyInterfaceUp(uint32_t) override {}
    void NotifyInterfaceDown(uint32_t) override {}
    void NotifyAddAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void NotifyRemoveAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void PrintRoutingTable(Ptr<OutputStreamWrapper>, Time::Unit) const override {}
};

// A host's message. The next packet is made when the line takes the one before, as an adapter does: no timer is needed,
// and one packet waits in the host at any time, not the whole message.
struct Sender
{
    Ptr<Socket> socket;
    uint64_t bytes_left;

    void SendNext()
    {
        const uint32_t size = std::min<uint64_t>(bytes_left, PAYLOAD_BYTES);
        if (size == 0)
            return;
        bytes_left -= size; // before Send, which comes back here by way of OnLineTakesPacket
        NS_ABORT_MSG_IF(socket->Send(Create<Packet>(size)) < 0, "a host could not send");
    }

    void OnLineTakesPacket(Ptr<const Packet>) { SendNext(); }
};

void OnPacketArrives(Ptr<Socket> socket)
{
    while (const auto packet = socket->Recv())
    {
        ++packets_delivered;
        bytes_delivered += packet->GetSize();
        last_arrival = Simulator::Now();
    }
}

// The devices of a switch are numbered in the order of its cables: those below first, then those above.
struct FatTree
{
    const uint32_t k, half = k / 2, edges = k * half, hosts = edges * half;
    NodeContainer host{}, edge{}, aggregation{}, core{};

    uint32_t PodOf(uint32_t h) const { return h / (half * half); }
    uint32_t EdgeOf(uint32_t h) const { return h / half; }
    uint32_t Distance(uint32_t a, uint32_t b) const
    {
        return EdgeOf(a) == EdgeOf(b) ? 2 : PodOf(a) == PodOf(b) ? 4 : 6;
    }

    void Cable(PointToPointHelper cable)
    {
        host.Create(hosts), edge.Create(edges), aggregation.Create(edges), core.Create(half * half);
        for (uint32_t h = 0; h < hosts; ++h)
            cable.Install(host.Get(h), edge.Get(EdgeOf(h)));
        for (uint32_t e = 0; e < edges; ++e)
            for (uint32_t up = 0; up < half; ++up)
                cable.Install(edge.Get(e), aggregation.Get(e / half * half + up));
        for (uint32_t a = 0; a < edges; ++a)
            for (uint32_t up = 0; up < half; ++up)
                cable.Install(aggregation.Get(a), core.Get(a % half * half + up));
    }

    // The destination alone chooses the way up: its place at its edge switch says which aggregation switch, the place
    // of that edge switch in its pod which core switch (d-mod-k, as InfiniBand's fat-tree routing does on a full tree).
    void Route()
    {
        for (uint32_t h = 0; h < hosts; ++h)
            Install(host.Get(h), h, [](uint32_t) { return 0; });
        for (uint32_t e = 0; e < edges; ++e)
            Install(edge.Get(e), hosts, [=](uint32_t d) { return d % half + (EdgeOf(d) == e ? 0 : half); });
        for (uint32_t a = 0; a < edges; ++a)
            Install(aggregation.Get(a), hosts,
                    [=](uint32_t d) { return EdgeOf(d) % half + (PodOf(d) == a / half ? 0 : half); });
        for (uint32_t c = 0; c < half * half; ++c)
            Install(core.Get(c), hosts, [=](uint32_t d) { return PodOf(d); });
    }

  private:
    // An IPv4 stack whose interfaces are the node's links; `self` is the host that the node is, `hosts` for a switch.
    template <typename PortOf>
    void Install(Ptr<Node> node, uint32_t self, PortOf port_of)
    {
        const uint32_t links = node->GetNDevices(); // before the stack adds its loopback
        InternetStackHelper stack;
        stack.SetIpv6StackInstall(false);
        stack.Install(node);
        const auto ipv4 = node->GetObject<Ipv4>();
        const auto table = CreateObject<ForwardingTable>();
        ipv4->SetRoutingProtocol(table);
        std::vector<Ptr<Ipv4Route>> route_of_link;
        for (uint32_t link = 0; link < links; ++link)
        {
            const uint32_t interface = ipv4->AddInterface(node->GetDevice(link));
            const auto route = Create<Ipv4Route>();
            route->SetOutputDevice(node->GetDevice(link));
            route->SetGateway(Ipv4Address::GetAny()); // the other end of the link; ns-3 wants it said
            if (self < hosts)
            {
                const Ipv4Address address(FIRST_ADDRESS + self);
                ipv4->AddAddress(interface, Ipv4InterfaceAddress(address, Ipv4Mask::GetOnes()));
                route->SetSource(address);
            }
            ipv4->SetUp(interface);
            route_of_link.push_back(route);
        }
        for (uint32_t d = 0; d < hosts; ++d)
            table->route_of_host.push_back(d == self ? nullptr : route_of_link[port_of(d)]);
    }
};

PointToPointHelper MakeCable()
{
    PointToPointHelper cable;
    cable.SetDeviceAttribute("DataRate", StringValue("400Gbps"));
    cable.SetDeviceAttribute("Mtu", UintegerValue(9000)); // or packets are fragmented
    cable.SetChannelAttribute("Delay", StringValue("500ns"));
    cable.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1000000p")); // as good as endless
    cable.DisableFlowControl();
    return cable;
}

std::vector<uint32_t> ReadDestinations(uint32_t hosts)
{
    std::vector<uint32_t> destinations(hosts);
    for (uint32_t h = 0; h < hosts; ++h)
        NS_ABORT_MSG_UNLESS(std::cin >> destinations[h] && destinations[h] < hosts && destinations[h] != h,
                            "host " << h << " has no destination, or itself");
    return destinations;
}

// A host's two sockets, and its first packet at time zero.
void Start(Ptr<Node> host, Sender& sender, uint32_t destination)
{
    const auto udp = host->GetObject<UdpSocketFactory>();
    const auto receiver = udp->CreateSocket();
    receiver->Bind(InetSocketAddress(Ipv4Address::GetAny(), PORT));
    receiver->SetRecvCallback(MakeCallback(&OnPacketArrives));
    sender.socket = udp->CreateSocket();
    sender.socket->Bind();
    sender.socket->Connect(InetSocketAddress(Ipv4Address(FIRST_ADDRESS + destination), PORT));
    host->GetDevice(0)->TraceConnectWithoutContext("PhyTxBegin", MakeCallback(&Sender::OnLineTakesPacket, &sender));
    Simulator::ScheduleWithContext(host->GetId(), Time(0), &Sender::SendNext, &sender);
}

double UserSeconds()
{
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_utime.tv_usec / 1e6;
}

// VmHWM, not ru_maxrss: that one remembers the parent's memory from before the exec.
double PeakMbyte()
{
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.rfind("VmHWM:", 0) == 0)
            return std::stod(line.substr(6)) / 1024;
    NS_ABORT_MSG("/proc/self/status has no VmHWM");
}

int main(int argc, char** argv)
{
    using Clock = std::chrono::steady_clock;
    using RealSeconds = std::chrono::duration<double>;
    NS_ABORT_MSG_IF(argc != 3, "usage: ns3_permutation K BYTES_PER_FLOW < destinations");
    const auto begin = Clock::now();
    Time::SetResolution(Time::PS); // a packet takes 82.52 ns on the line
    FatTree tree{uint32_t(std::stoul(argv[1]))};
    const uint64_t bytes_per_flow = std::stoull(argv[2]);
    const uint64_t packets_per_flow = (bytes_per_flow + PAYLOAD_BYTES - 1) / PAYLOAD_BYTES;
    tree.Cable(MakeCable());
    tree.Route();
    const auto destinations = ReadDestinations(tree.hosts);
    std::vector<Sender> senders(tree.hosts, {nullptr, bytes_per_flow});
    uint64_t links_expected = 0;
    for (uint32_t h = 0; h < tree.hosts; ++h)
    {
        Start(tree.host.Get(h), senders[h], destinations[h]);
        links_expected += packets_per_flow * tree.Distance(h, destinations[h]);
    }

    const auto start = Clock::now();
    const double user_before = UserSeconds();
    Simulator::Run();
    const double user_s = UserSeconds() - user_before;
    const RealSeconds setup = start - begin, wall = Clock::now() - start;

    NS_ABORT_MSG_IF(bytes_delivered != tree.hosts * bytes_per_flow, "packets were lost");
    NS_ABORT_MSG_IF(links_crossed != links_expected, "packets strayed from their shortest paths");
    std::printf("{\"packets\": %lu, \"packet_hops\": %lu, \"events\": %lu, \"last_arrival_ps\": %ld, "
                "\"setup_s\": %.6f, \"wall_s\": %.6f, \"user_s\": %.6f, \"mbyte\": %.1f}\n",
                packets_delivered, links_crossed, Simulator::GetEventCount(), last_arrival.GetPicoSeconds(),
                setup.count(), wall.count(), user_s, PeakMbyte());
}
