//! An all-reduce by hand, and in one line: what happens underneath when devices add up what they hold.
//!
//! By hand it is a server that sums and four clients, over TCP. A client sends its values, four bytes each, and gets the sum back. The
//! server waits for all of them before it adds, and adds in the order of the clients, not of arrival: sums of floats depend on the order,
//! and this one is the same each time. Unisono keeps the same promise with no server in the middle, over threads of one process or
//! processes on many hosts.
//!
//! `cargo run --release --example mini_allreduce`

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use unisono::prelude::*;

const CLIENTS: usize = 4;

/// What each of the four holds.
pub fn values() -> Vec<Vec<f32>> {
    vec![
        vec![1.0, 10.0, 1e8],
        vec![2.0, 20.0, 1.0],
        vec![3.0, 30.0, -1e8],
        vec![4.0, 40.0, -1.0],
    ]
}

/// A client: its number and its values go out, the sum comes back.
fn client(address: std::net::SocketAddr, number: usize, values: &[f32]) -> io::Result<Vec<f32>> {
    let mut server = TcpStream::connect(address)?;
    server.write_all(&[number as u8])?;
    server.write_all(&to_bytes(values))?;
    let mut sum = vec![0; 4 * values.len()];
    server.read_exact(&mut sum)?;
    Ok(to_floats(&sum))
}

/// The server: values of all clients come in, their sum goes out.
fn server(listener: &TcpListener, len: usize) -> io::Result<()> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let (mut client, _) = listener.accept()?;
        let (mut number, mut bytes) = ([0], vec![0; 4 * len]);
        client.read_exact(&mut number)?;
        client.read_exact(&mut bytes)?;
        clients.push((number[0], client, to_floats(&bytes)));
    }
    clients.sort_by_key(|(number, ..)| *number);
    let sum: Vec<f32> = (0..len)
        // Neighbours first, then their sums: a tree, as on a mesh. One after the other 1e8 + 1 − 1e8 − 1 would be −1.
        .map(|i| (clients[0].2[i] + clients[1].2[i]) + (clients[2].2[i] + clients[3].2[i]))
        .collect();
    for (_, client, _) in &mut clients {
        client.write_all(&to_bytes(&sum))?;
    }
    Ok(())
}

fn to_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn to_floats(bytes: &[u8]) -> Vec<f32> {
    let four = |part: &[u8]| f32::from_le_bytes([part[0], part[1], part[2], part[3]]);
    bytes.chunks_exact(4).map(four).collect()
}

/// By hand: what each client has in the end.
pub fn over_sockets(values: &[Vec<f32>]) -> io::Result<Vec<Vec<f32>>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || client(address, number, &values[number])))
            .collect();
        server(&listener, values[0].len())?;
        clients
            .into_iter()
            .map(|client| client.join().expect("it does not panic"))
            .collect()
    })
}

/// The same on a mesh of four devices: what each of them has in the end.
pub fn on_a_mesh(values: &[Vec<f32>]) -> Result<Vec<Vec<f32>>> {
    let device = MeshDevice::open(Mesh::new(&[("dp", CLIENTS)])?, Options::default())?;
    let held = device.batch(&values.concat(), &[CLIENTS, values[0].len()])?;
    let sum = collectives::all_reduce(&held, Reduction::Sum, Along::ALL)?;
    (0..CLIENTS).map(|number| sum.to_vec_on(number)).collect()
}

#[allow(dead_code)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let values = values();
    let (by_hand, in_one_line) = (over_sockets(&values)?, on_a_mesh(&values)?);
    assert_eq!(by_hand, in_one_line);
    println!("each of {CLIENTS} has {:?}, by hand and in one line", by_hand[0]);
    Ok(())
}
